//! Calls every host function, see ../../README.md.

use deltarouter::host::{self, Errno, Request};
use deltarouter::{json, Delta, Event, Verdict};

fn setup(config: json::Value) -> Result<impl FnMut(&Delta) -> Verdict, String> {
    let url = config.get("url").text_or_empty().into_owned();
    Ok(move |d: &Delta| calls(d, &url))
}

fn name(object: &str) -> String {
    json::Value::new(object).at(&["metadata", "name"]).text_or_empty().into_owned()
}

fn calls(d: &Delta, url: &str) -> Verdict {
    let seen = host::kv_get(d.name)?.unwrap_or_default();
    host::kv_set(d.name, &[&seen[..], b"x"].concat(), None)?;
    host::kv_set("gone", b"", None)?;
    host::kv_delete("gone")?;
    let pods = host::lookup("pods.byNode", "n1")?;
    let count = host::count("pods.byNode", "n1")?;
    let nodes = host::list("nodes")?;
    let one = host::get("nodes", "", "n1")?.unwrap_or_default();
    let none = host::get("nodes", "", "n9")?;
    let denied = host::lookup("secrets.byName", "x") == Err(Errno::Denied);
    let headers = vec![("X-Ask".to_string(), "1".to_string())];
    let answer = host::http(&Request { method: "POST".to_string(), url: url.to_string(), headers, body: "é".into() })?;
    let header = answer.headers.iter().find(|(k, _)| k == "x-answer").map_or("", |(_, v)| v);
    host::random(&mut [0; 8])?;
    assert!(host::now_ns() >= 0);
    let mut early = json::Writer::new();
    early.string(d.name);
    host::emit(d, &Event::new(early).with_type("early"))?;

    let mut data = json::Writer::new();
    data.object(|o| {
        o.key("bytes").int(answer.body.len() as i64).key("count").int(count as i64).key("denied").bool(denied);
        o.key("header").string(header).key("list").int(nodes.len() as i64).key("none").bool(none.is_none());
        o.key("one").string(&name(&one));
        o.key("path").raw(d.path("metadata.name").raw());
        o.key("pods").array(|a| {
            for pod in &pods {
                a.string(&name(pod));
            }
        });
        o.key("seen").string(&String::from_utf8_lossy(&seen)).key("status").int(answer.status.into());
    });
    Ok(vec![Event::new(data)])
}

deltarouter::handler!(setup);
