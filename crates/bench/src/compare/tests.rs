use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: CompareArgs,
}

fn args(line: &str) -> CompareArgs {
    let words = ["compare"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap().args
}

fn order(rate: Option<f64>, workload: &str) -> RunOrder {
    RunOrder {
        workload: mix::parse(workload).unwrap().remove(0),
        records: 10,
        clients: 1,
        warmup_seconds: 0.0,
        seconds: 10.0,
        operations: None,
        rate,
        seed: 1,
        load_only: false,
        keep_inserted: false,
        compressible: 0.0,
    }
}

#[test]
fn what_is_given_comes_before_what_quick_means() {
    let quick = args("--quick --seconds 7");
    assert_eq!(
        (quick.seconds(), quick.repeat(), quick.records()),
        (7.0, 1, 50_000)
    );
    let long = args("");
    assert_eq!(
        (long.seconds(), long.repeat(), long.records()),
        (60.0, 3, 2_000_000)
    );
    assert_eq!(long.workloads().unwrap().len(), 6);
    assert_eq!(quick.workloads().unwrap().len(), 4);
}

#[test]
fn values_and_clustering_hold_for_every_workload() {
    let workloads = args("--workloads ycsb,ohdb --value-bytes 77 --clustered").workloads();
    for workload in workloads.unwrap() {
        assert_eq!((workload.value_bytes, workload.keys.clustered), (77, true));
    }
}

#[test]
fn numbers_out_of_range_are_said_in_words() {
    for line in [
        "--seconds 0",
        "--seconds nan",
        "--warmup -1",
        "--rate 0",
        "--rate inf",
        "--fast-share 0",
        "--fast-share 16,1001",
    ] {
        let line = line.replace(' ', "=");
        assert!(args(&line).check().is_err(), "{line}");
    }
    assert!(args("--fast-share 16,40 --rate 5").check().is_ok());
}

#[test]
fn operations_are_asked_for_instead_of_seconds() {
    let asked = |line: &str| {
        let args = args(line);
        let workload = mix::parse("ycsb-a").unwrap().remove(0);
        (
            super::order(&args, &workload, [0, 0]).operations,
            args.length(),
        )
    };
    let words = |text: &str| text.to_string();
    assert_eq!(
        asked("--seconds 6 --warmup 1"),
        (None, words("1.0 s of warm-up, 6 s measured"))
    );
    assert_eq!(
        asked("--operations 30"),
        (
            Some([10, 30]),
            words("10 operations of warm-up, 30 measured")
        )
    );
    let none = "--operations 1 --warmup-operations 0";
    assert_eq!(asked(none).0, Some([0, 1]));
    for line in [
        "--operations 0",
        "--operations 1 --seconds 1",
        "--operations 1 --warmup 1",
        "--operations 1 --rate 1",
        "--operations 1 --engines null --rate-of null",
        "--warmup-operations 1",
    ] {
        let words = ["compare"].into_iter().chain(line.split_whitespace());
        assert!(Line::try_parse_from(words).is_err(), "{line}");
    }
}

#[test]
fn the_engine_whose_rate_is_asked_for_runs_first() {
    let asked = |line: &str| args(line).contenders();
    let names = |line: &str| {
        let (contenders, _) = asked(line).unwrap();
        contenders
            .iter()
            .map(Contender::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let line = "--engines null/all-fast,null/all-slow --rate-of";
    assert_eq!(
        names(&format!("{line} null/all-slow")),
        "null/all-slow null/all-fast"
    );
    assert_eq!(
        names(&format!("{line} null/all-fast")),
        "null/all-fast null/all-slow"
    );
    for line in ["--engines null --rate-of null/all-slow", "--rate-of null"] {
        assert!(asked(line).is_err(), "{line}");
    }
}

#[test]
fn a_run_whose_halves_differ_is_marked() {
    let outcome = |drift| RunOutcome {
        operations: 1000,
        seconds: 10.0,
        drift: Some(drift),
        ..RunOutcome::default()
    };
    let closed = order(None, "ycsb-a");
    assert_eq!(marks(&closed, &outcome(0.05)), [""; 0]);
    assert_eq!(marks(&closed, &outcome(-0.25)), ["drifting -25 %"]);
    let counted = order(None, "ohdb-fillrandom");
    assert!(
        marks(&counted, &outcome(0.5)).is_empty(),
        "it has no steady state"
    );
}

#[test]
fn a_rate_that_is_not_reached_is_marked_and_a_run_without_work_too() {
    let outcome = |operations| RunOutcome {
        operations,
        seconds: 10.0,
        ..RunOutcome::default()
    };
    let open = order(Some(100.0), "ycsb-a");
    assert!(marks(&open, &outcome(990)).is_empty());
    assert_eq!(marks(&open, &outcome(900)), ["rate not reached"]);
    assert_eq!(marks(&order(None, "ycsb-a"), &outcome(0)), ["nothing done"]);
}

/// B drew the keys of A once, and C those of B, all from the same seed: what a cache had
/// kept of the one was asked for in the other, until that drew more keys than the one before.
#[test]
fn workloads_that_follow_each_other_draw_other_keys() {
    let args = args("--workloads ycsb-b,ycsb-c");
    let workloads = args.workloads().unwrap();
    let seeds = (0..9).flat_map(|repetition| (0..9).map(move |others| [repetition, others]));
    let mut seeds: Vec<u64> = seeds
        .map(|at| super::order(&args, &workloads[0], at).seed)
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 81);
}
