use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thermocline_model::edit::{Change, Edit};
use thermocline_model::job::{NewPart, Reason, Recut};
use thermocline_model::key::SeqNo;
use thermocline_model::version::{KeyspaceId, Tiny};

use crate::engine::ReadView;
use crate::{Db, Options};

/// The job that makes parts begin at these keys.
fn recut_to(starts: &[&str]) -> Recut {
    let parts = starts.iter().map(|start| NewPart {
        duplicates: 0,
        tiny: vec![Tiny {
            start: start.as_bytes().into(),
            writes: 0,
        }],
    });
    Recut {
        keyspace: KeyspaceId::DEFAULT,
        parts: parts.collect(),
        reason: Reason::new("test"),
    }
}

fn view(db: &Db) -> Arc<ReadView> {
    db.space.view.load_full()
}

/// A flush of a part that kept its place could end while the cuts of others moved. What had been
/// seen of it before was then put back, with the memtables that were flushed already: they
/// would have been flushed again, which the one door refuses, and writing would have ended.
#[test]
fn a_flush_that_ends_while_the_cuts_of_other_parts_move_is_not_undone() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::at(directory.path())
        .preset("nova")
        .cuts(vec![b"m".to_vec()])
        .background_threads(0);
    let db = Db::open(options).unwrap();
    for key in [b"a", b"x"] {
        db.put(key, b"1").unwrap();
    }
    let engine = &db.handle.engine;
    engine.seal_all(None);
    let last = &view(&db).parts[0].sealed[0].last_seq;
    let flushed = Edit::of(Change::SetFlushed {
        keyspace: KeyspaceId::DEFAULT,
        part: 0,
        flushed: SeqNo(last.load(Ordering::Acquire)),
    });
    std::thread::scope(|scope| {
        let mut moving = None;
        let committed = engine.commit_edit(flushed, Vec::new(), &mut |_, parts| {
            let job = recut_to(&["", "m", "t"]);
            moving = Some(scope.spawn(move || engine.run_recut(&job).unwrap()));
            // It looks at the view, and then waits for this edit.
            std::thread::sleep(Duration::from_millis(200));
            parts[0].sealed.clear();
        });
        committed.unwrap();
        moving.unwrap().join().unwrap();
    });
    let view = view(&db);
    assert_eq!(view.parts.len(), 3);
    assert!(view.parts[0].sealed.is_empty());
    assert_eq!(view.parts[1].sealed.len(), 1);
}
