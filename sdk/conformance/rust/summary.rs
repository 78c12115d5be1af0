//! The handler that every SDK has, see ../README.md.

use deltarouter::{json, Delta, Event, Op, Stop, Verdict};
use std::time::Duration;

fn setup(config: json::Value) -> Result<impl FnMut(&Delta) -> Verdict, String> {
    let note = config.get("note").text().ok_or("config: note is missing")?.into_owned();
    Ok(move |d: &Delta| summary(d, &note))
}

fn summary(d: &Delta, note: &str) -> Verdict {
    let annotations = d.path("metadata.annotations");
    match &*annotations.get("verdict").text_or_empty() {
        "fail" => return Err("as you wish".into()),
        "retry" => return Err(Stop::Retry("later".to_string(), Duration::from_secs(90))),
        "drop" => return Err(Stop::Drop),
        _ => {}
    }
    let says = annotations.get(note).text_or_empty();
    let (before, after) = (d.old_path("spec.replicas").int().unwrap_or(0), d.path("spec.replicas").int().unwrap_or(0));
    let name = if d.namespace.is_empty() { d.name.to_string() } else { format!("{}/{}", d.namespace, d.name) };

    let mut data = json::Writer::new();
    data.object(|o| {
        if let Some(e) = d.event {
            let (seconds, team) = (e.time_ns / 1_000_000_000, e.data.get("team").text_or_empty());
            o.key("event").string(&format!("{} {} {} {} {} {} {}", e.id, e.kind, e.source, e.subject, e.route, seconds, team));
        }
        o.key("labels").int(d.path("metadata.labels").members().count() as i64);
        if d.late {
            o.key("late").bool(true);
        }
        o.key("note").string(&says);
        o.key("object").string(&name);
        o.key("op").string(d.op.name());
        if d.repeat {
            o.key("repeat").bool(true);
        }
        if d.op == Op::Updated && before != after {
            o.key("replicas").array(|a| {
                a.int(before).int(after);
            });
        }
        if d.since_ns != 0 {
            o.key("since").int(d.since_ns / 1_000_000_000);
        }
        if d.suppressed != 0 {
            o.key("suppressed").int(d.suppressed);
        }
        if let Some(team) = d.path(r"metadata.annotations.example\.com/team").text() {
            o.key("team").string(&team);
        }
        if !d.traceparent.is_empty() {
            o.key("traceparent").string(d.traceparent);
        }
        if !d.with.is_absent() {
            o.key("with").int(d.with.get("pods").int().unwrap_or(0));
        }
    });
    let event = Event::new(data).with_type("summary");
    Ok(vec![if says.is_empty() { event.with_subject("nothing to say") } else { event }])
}

deltarouter::handler!(setup);

#[cfg(test)]
mod tests {
    #[test]
    fn golden() {
        deltarouter::test::golden(include_str!("../summary.txtar"), super::setup);
    }
}
