//! Reads one field and emits one event, see ../../README.md.

use deltarouter::{json, Delta, Event, Verdict};

fn setup(_config: json::Value) -> Result<impl FnMut(&Delta) -> Verdict, String> {
    Ok(|d: &Delta| {
        let mut data = json::Writer::new();
        data.object(|o| {
            o.key("phase").string(&d.path("status.phase").text_or_empty());
        });
        Ok(vec![Event::new(data)])
    })
}

deltarouter::handler!(setup);
