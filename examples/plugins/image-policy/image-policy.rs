//! A handler that flags containers whose image is not pinned by a digest. See README.md.

use deltarouter::{json, Delta, Event, Op, Verdict};

/// Emits an event about the containers that break the policy; none if the object is gone, or if they broke it before in the same way.
fn setup(config: json::Value) -> Result<impl FnMut(&Delta) -> Verdict, String> {
    for (key, _) in config.members() {
        if key != "allow" {
            return Err(format!("config: unknown key {:?}", key));
        }
    }
    let allow: Vec<String> = config.get("allow").items().map(|v| v.text_or_empty().into_owned()).collect();
    if allow.iter().any(String::is_empty) {
        return Err("config: allow must be a list of prefixes of images".to_string());
    }
    Ok(move |d: &Delta| {
        if matches!(d.op, Op::Deleted | Op::Deselected) {
            return Ok(vec![]);
        }
        let found = violations(d.object, &allow);
        if found.is_empty() || (d.op == Op::Updated && found == violations(d.old_object, &allow)) {
            return Ok(vec![]);
        }
        Ok(vec![event(d, &found)])
    })
}

/// A container and why its image breaks the policy.
#[derive(PartialEq)]
struct Violation {
    list: &'static str,
    container: String,
    image: String,
    reason: &'static str,
}

/// Where a pod's specification lies: in the pod, in the template of a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job, in the
/// template of a CronJob's template. A PodTemplate has it beside its metadata.
const SPECS: [&[&str]; 4] = [&["spec"], &["spec", "template", "spec"], &["spec", "jobTemplate", "spec", "template", "spec"], &["template", "spec"]];

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

fn violations(object: json::Value, allow: &[String]) -> Vec<Violation> {
    let mut found = Vec::new();
    for spec in SPECS.map(|path| object.at(path)) {
        for list in LISTS {
            for c in spec.get(list).items() {
                let image = c.get("image").text_or_empty();
                if let Some(reason) = problem(&image, allow) {
                    let container = c.get("name").text_or_empty().into_owned();
                    found.push(Violation { list, container, image: image.into_owned(), reason });
                }
            }
        }
    }
    found
}

/// Why an image is not pinned: `name[:tag]@algorithm:hex` is.
fn problem(image: &str, allow: &[String]) -> Option<&'static str> {
    if allow.iter().any(|prefix| image.starts_with(prefix.as_str())) {
        return None;
    }
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    if name.is_empty() {
        return Some("no image");
    }
    if let Some(digest) = digest {
        return if is_digest(digest) { None } else { Some("malformed digest") };
    }
    // A colon before the last slash is that of a registry's port.
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("", |(_, tag)| tag);
    Some(if tag.is_empty() || tag == "latest" { "latest" } else { "tag without digest" })
}

fn is_digest(digest: &str) -> bool {
    let (algorithm, hex) = digest.split_once(':').unwrap_or(("", ""));
    let size = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == size && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn event(d: &Delta, found: &[Violation]) -> Event {
    let mut data = json::Writer::new();
    data.object(|o| {
        o.key("kind").string(d.kind);
        if !d.namespace.is_empty() {
            o.key("namespace").string(d.namespace);
        }
        o.key("name").string(d.name);
        o.key("violations").array(|a| {
            for v in found {
                a.object(|o| {
                    o.key("list").string(v.list).key("container").string(&v.container);
                    o.key("image").string(&v.image).key("reason").string(v.reason);
                });
            }
        });
    });
    Event::new(data).with_type("deltarouter.image-policy")
}

deltarouter::handler!(setup);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        deltarouter::test::golden(include_str!("testdata/kinds.txtar"), setup);
        deltarouter::test::golden(include_str!("testdata/changes.txtar"), setup);
    }

    #[test]
    fn problems() {
        let digest = "a".repeat(64);
        let tests = [
            (format!("nginx@sha256:{}", digest), None),
            (format!("localhost:5000/a/nginx:1.2@sha256:{}", digest), None),
            (format!("nginx@sha256:{}", &digest[1..]), Some("malformed digest")),
            (format!("nginx@sha256:{}", digest.to_uppercase()), Some("malformed digest")),
            ("nginx@md5:aa".to_string(), Some("malformed digest")),
            ("nginx".to_string(), Some("latest")),
            ("localhost:5000/nginx".to_string(), Some("latest")),
            ("nginx:latest".to_string(), Some("latest")),
            ("localhost:5000/nginx:1".to_string(), Some("tag without digest")),
            ("".to_string(), Some("no image")),
            ("trusted.example/any".to_string(), None),
        ];
        for (image, want) in tests {
            assert_eq!(problem(&image, &["trusted.example/".to_string()]), want, "{}", image);
        }
    }

    #[test]
    fn config() {
        for bad in [r#"{"alow": []}"#, r#"{"allow": [""]}"#, r#"{"allow": [1]}"#] {
            assert!(setup(json::Value::new(bad)).is_err(), "{}", bad);
        }
        assert!(setup(json::Value::new("null")).is_ok());
    }
}
