//! Scenarios that are tests of several presets each.

/// `for_presets!(mutant, logstore: (case_20_a, case_21_b))` makes of each function, which takes the
/// name of a preset, a test for each preset: `mutant::case_20_a`, and so on.
macro_rules! for_presets {
    ($($preset:ident),+ : $scenarios:tt) => {
        $(mod $preset { $crate::presets::for_presets!(@ $preset $scenarios); })+
    };
    (@ $preset:ident ($($scenario:ident),+ $(,)?)) => {
        $(#[test]
        fn $scenario() {
            super::$scenario(stringify!($preset));
        })+
    };
}

pub(crate) use for_presets;
