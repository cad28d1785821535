//! Plain data of the Thermocline storage engine: keys, key ranges, tiers,
//! tables, versions, edits and jobs.
//!
//! Nothing here touches a file, a thread or a clock, so every type can be made
//! in a test, written to a log, shown to an operator or sent to another node.
//! The vocabulary is that of ARCHITECTURE.md: one word for one idea.

pub mod check;
pub mod codec;
pub mod cover;
pub mod cuts;
pub mod edit;
pub mod forecast;
pub mod job;
pub mod join;
pub mod key;
pub mod moves;
pub mod picture;
pub mod predicted;
pub mod range;
pub mod recut;
pub mod table;
pub mod tier;
pub mod triggers;
pub mod version;
pub mod view;

pub use check::{Broken, Invariant, check_edit, check_version};
pub use cuts::Cuts;
pub use edit::{Change, Edit};
pub use forecast::{Forecast, ForecastMove, ForecastState};
pub use job::{Job, Reason};
pub use key::{Kind, SeqNo};
pub use moves::Moves;
pub use predicted::{Benefit, Predicted};
pub use range::KeyRange;
pub use table::{Compression, Extent, ObjectId, TableId, TableMeta};
pub use tier::{DeviceProfile, TierId, TierState};
pub use triggers::{PartTriggers, RecutTriggers};
pub use version::{Ahead, Keyspace, KeyspaceId, Level, Part, Run, RunId, Slot, Tiny, Version};
pub use view::View;
