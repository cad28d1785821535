//! `thermocline events`.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::Out;
use crate::engine::{EVENT_JOBS, Event, EventReader};
use crate::exit::{Exit, Failure};
use crate::human;
use crate::store::StoreArgs;

/// How often a followed store is looked at.
const FOLLOW_WAIT: Duration = Duration::from_millis(200);

/// List what the background did, and why
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thermocline events --db /srv/db
  thermocline events --db /srv/db --follow --job relocate
  thermocline events --db /srv/db --last 1000 --json | jq .reason.rule
  thermocline events --db /srv/db --json | jq .reason.predicted.device_seconds

Every flush, merge and move is listed with the rule that called for it, the
numbers that the rule compared, and what the job was predicted to read and
write, to cost the devices and to gain. The store may be open in another process; what that does is there within a
second. The record is bounded, some thousand events, and outlives restarts; where
it was damaged, the events that are left are listed.")]
pub(crate) struct Events {
    #[command(flatten)]
    store: StoreArgs,
    /// So many of those that are there; all with `all`
    #[arg(long, value_name = "N", default_value = "20", value_parser = last)]
    last: usize,
    /// Go on with what comes, until interrupted
    #[arg(long)]
    follow: bool,
    /// Only jobs of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(EVENT_JOBS))]
    job: Option<String>,
    /// Only what this rule called for, such as over-budget
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

fn last(text: &str) -> Result<usize, String> {
    if text == "all" {
        return Ok(usize::MAX);
    }
    text.parse()
        .map_err(|_| format!("{text:?} is not a number, nor \"all\""))
}

impl Events {
    pub(crate) fn run(self, out: Out<'_>) -> Result<Exit, Failure> {
        let options = self.store.options()?;
        crate::store::check_is_there(&options)?;
        let mut reader = EventReader::new(&options);
        let mut events = reader.read()?;
        self.check_rule(&events)?;
        events.retain(|e| self.wants(e));
        let skipped = events.len().saturating_sub(self.last);
        for event in &events[skipped..] {
            self.print(out, event)?;
        }
        if !self.follow {
            return Ok(Exit::Done);
        }
        loop {
            // Shown now, and a pipe that was closed is noticed.
            out.flush()?;
            std::thread::sleep(FOLLOW_WAIT);
            for event in reader.read()?.iter().filter(|e| self.wants(e)) {
                self.print(out, event)?;
            }
        }
    }

    /// Refuses a rule that called for nothing, naming those that did. Which there are is up to the
    /// presets; one that is followed may be yet to come.
    fn check_rule(&self, events: &[Event]) -> Result<(), Failure> {
        let Some(rule) = self.rule.as_ref().filter(|_| !self.follow) else {
            return Ok(());
        };
        let rules: BTreeSet<_> = events.iter().map(|e| e.reason.rule.as_str()).collect();
        if rules.contains(rule.as_str()) {
            return Ok(());
        }
        let rules: Vec<_> = rules.into_iter().collect();
        let there = match rules.is_empty() {
            true => "there are none".to_string(),
            false => format!("there are those of {}", rules.join(", ")),
        };
        let message = format!("no event of rule {rule:?} is left; {there}");
        Err(Failure::new(Exit::No, message))
    }

    fn wants(&self, event: &Event) -> bool {
        self.job.as_ref().is_none_or(|job| *job == event.job)
            && (self.rule.as_ref()).is_none_or(|rule| *rule == event.reason.rule)
    }

    fn print(&self, out: Out<'_>, event: &Event) -> Result<(), Failure> {
        if self.json {
            serde_json::to_writer(&mut *out, event)?;
            writeln!(out)?;
        } else {
            // What a damaged or foreign record says must not steer a terminal.
            let text = crate::text::escape(event.to_string().as_bytes());
            let moment = human::moment(event.started_us);
            writeln!(out, "{moment} {:>5} {text}", event.number)?;
        }
        Ok(())
    }
}
