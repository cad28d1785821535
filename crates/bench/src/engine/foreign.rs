//! What the C interfaces of the peers have in common: both report errors as
//! allocated strings, and both name files by C strings.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;

use super::Result;

/// Declares types that are only ever seen behind a pointer.
macro_rules! opaque {
    ($($name:ident),* $(,)?) => {
        $(
            #[repr(C)]
            pub(crate) struct $name {
                _opaque: [u8; 0],
            }
        )*
    };
}
pub(super) use opaque;

/// Turns a library's error string into an error and frees it with `free`.
///
/// # Safety
/// `error` is null, or a null-terminated string that `free` may free.
#[inline]
pub(super) unsafe fn check(
    error: *mut c_char,
    free: unsafe extern "C" fn(*mut c_void),
) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the caller promises a null-terminated string.
    let message = unsafe { CStr::from_ptr(error) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: the caller promises that `free` may free it; the copy is ours.
    unsafe { free(error.cast()) };
    Err(message.into())
}

/// `path` as a C string.
pub(super) fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

/// The bytes that a library returned by pointer and length.
///
/// # Safety
/// `data` points to `length` bytes that live and stay unchanged for `'a`, or
/// `length` is zero.
#[inline]
pub(super) unsafe fn bytes<'a>(data: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(data.cast(), length) }
}
