//! `thermocline model`.

mod common;

use common::{Scratch, exits, files, json, run, text};

/// The message of a call that is refused.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

#[test]
fn the_papers_predictions_come_out_of_its_inputs() {
    let table = exits(0, &["model", "--paper"]);
    // Of the equation and of the paper's rounded 1,110.
    for number in ["6,658", "3,551", "3,552"] {
        assert!(table.contains(number), "{table}");
    }
    let rows = json(&["model", "--paper", "--json"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4 + 4 + 12);
    for row in rows {
        let place = row["place"].as_str().unwrap();
        assert_eq!(row["comes_out"], !place.starts_with("table V,"), "{row}");
    }
    // The stated shares give table IV, through the options as well.
    let object = json(&["model", "--json", "--read-shares", "70%,22.7%,7.3%"]);
    let predicted = &object["predicted"];
    assert_eq!(
        predicted["reads_per_second"].as_f64().unwrap().round(),
        822.0
    );
    assert_eq!(
        predicted["writes_per_second"].as_f64().unwrap().round(),
        6658.0
    );
    assert_eq!(predicted["limited_by"]["tier"], "hdd");
}

#[test]
fn the_tier_that_limits_is_named() {
    let fast = "fast,iops=1000,mbs=1000,share=90%";
    let slow = "slow,iops=900,mbs=1000";
    let tiers = ["model", "--tier", fast, "--tier", slow];
    let few = ["--memory", "0", "--distribution", "uniform"];
    let shown = exits(0, &[&tiers[..], &few].concat());
    assert!(shown.contains("limited by random reads of fast"), "{shown}");
    let much = ["--distribution", "hotspot=20/90"];
    let shown = exits(0, &[&tiers[..], &much].concat());
    assert!(shown.contains("limited by random reads of slow"), "{shown}");
    let writes = ["--reads", "0"];
    let shown = exits(0, &[&tiers[..], &writes].concat());
    assert!(shown.contains("limited by sequential transfer"), "{shown}");
    let all = ["--memory", "100%"];
    let shown = exits(0, &[&tiers[..], &all].concat());
    assert!(shown.contains("100.0% reads   no device limits"), "{shown}");
    let object = json(&[&tiers[..], &all, &["--json"]].concat());
    assert!(object["predicted"]["operations_per_second"].is_null());
}

#[test]
fn inputs_that_mean_nothing_are_named() {
    for (arguments, word) in [
        (&["--tier", "fast"][..], "what can its device do"),
        (&["--tier", "fast,device=tape"], "tape"),
        (&["--tier", "fast,iops=0,mbs=1"], "rate"),
        (&["--tier", "fast,iops=1e13,mbs=1"], "up to 1e12"),
        (
            &["--tier", "a,device=ssd,share=50%", "--tier", "a,device=hdd"],
            "two tiers are called \"a\"",
        ),
        (&["--tier", "a,device=hdd,share=50%"], "add up to 1"),
        (
            &[
                "--tier",
                "a,device=ssd,share=80%",
                "--tier",
                "b,device=hdd,share=40%",
            ],
            "add up to 1",
        ),
        (
            &[
                "--tier",
                "a,device=ssd",
                "--tier",
                "b,device=ssd",
                "--tier",
                "c,device=hdd",
            ],
            "all but one",
        ),
        (&["--tier", "a,device=hdd,levels=0"], "levels"),
        (&["--tier", "a,device=hdd,probes=0"], "probes"),
        (&["--distribution", "zipf=11"], "skew"),
        (&["--distribution", "zipf=nan"], "skew"),
        (&["--distribution", "latest"], "distribution"),
        (&["--distribution", "hotspot=120/5"], "hot spot"),
        (&["--read-shares", "50%,50%"], "found 1 of tiers"),
        (&["--read-shares", "50%,20%,20%"], "add up to 1"),
        (&["--growth", "0"], "growth"),
        (&["--growth", "-1"], "growth"),
        (&["--reads", "101%"], "share"),
        (&["--memory", "-1"], "share"),
        (&["--records", "0"], "records"),
        (&["--preset", "leveled"], "--measure"),
        (&["--measure", "--preset", "none"], "leveled"),
        (&["--measure", "--records", "100000001"], "at most"),
        (&["--measure", "--record-bytes", "20"], "32 bytes"),
        (&["--measure", "--distribution", "zipf=1"], "below 1"),
        (&["--measure", "--seconds", "0"], "--seconds"),
        (&["--measure", "--paper"], "--paper"),
        (&["--measure", "--seconds", "nan"], "seconds"),
    ] {
        // An argument that begins with a dash is told apart from an option.
        let joined: Vec<String> = match arguments {
            [option, value] if value.starts_with('-') && !value.starts_with("--") => {
                vec![format!("{option}={value}")]
            }
            other => other.iter().map(|a| (*a).to_owned()).collect(),
        };
        let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
        let message = refused(&[&["model"][..], &joined].concat());
        assert!(message.contains(word), "{word}: {message}");
    }
}

#[test]
fn measuring_shows_predicted_beside_measured_and_leaves_nothing() {
    let scratch = Scratch::new();
    let (fast, slow) = (scratch.path("fast"), scratch.path("slow"));
    std::fs::create_dir(&fast).unwrap();
    std::fs::create_dir(&slow).unwrap();
    // One tier is measured, of the other it is said what it can do.
    let tiers = [
        "--tier".to_owned(),
        format!("fast={fast},share=30%"),
        "--tier".to_owned(),
        format!("slow={slow},iops=1000,mbs=100"),
    ];
    let tiers: Vec<&str> = tiers.iter().map(String::as_str).collect();
    let small = ["--records", "3000", "--warmup", "0", "--seconds", "0.2"];
    let call = [
        &["model", "--measure", "--reads", "50%"][..],
        &small,
        &tiers,
    ]
    .concat();
    let object = json(&[&call[..], &["--json"]].concat());
    let measured = &object["measured"];
    assert!(measured["operations"].as_u64().unwrap() > 0);
    assert_eq!(object["records"], 3000);
    assert_eq!(object["tiers"][1]["random_read_iops"], 1000.0);
    assert!(object["tiers"][0]["random_read_iops"].as_f64().unwrap() > 0.0);
    let tiers_read = measured["tiers"].as_array().unwrap();
    let shares = tiers_read.iter().map(|t| t["read_share"].as_f64().unwrap());
    let all = shares.sum::<f64>() + measured["memory_read_share"].as_f64().unwrap();
    assert!((all - 1.0).abs() < 1e-9, "{measured}");
    let shown = exits(0, &call);
    assert!(shown.contains("measured/predicted"), "{shown}");
    assert_eq!(files(fast.as_ref()).len() + files(slow.as_ref()).len(), 0);
}

#[test]
fn too_little_room_is_said_before_anything_is_loaded() {
    let scratch = Scratch::new();
    let dir = scratch.path("");
    // A hundred terabytes.
    let large = ["--records", "100000000", "--record-bytes", "1048576"];
    let place = ["--scratch", &dir];
    let known = ["--tier", "a,device=hdd,share=0", "--tier", "b,device=hdd"];
    let call = [&["model", "--measure"][..], &large, &place, &known].concat();
    let message = refused(&call);
    assert!(message.contains("tier b needs"), "{message}");
    assert_eq!(files(dir.as_ref()).len(), 0);
}
