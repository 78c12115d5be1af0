//! The SDK for handlers in Rust. A handler gets a change of a Kubernetes object and returns the events to deliver; it
//! runs in a sandbox inside the router:
//!
//! ```
//! use deltarouter::{json, Delta, Event, Verdict};
//!
//! fn setup(_config: json::Value) -> Result<impl FnMut(&Delta) -> Verdict, String> {
//!     Ok(|d: &Delta| {
//!         let mut data = json::Writer::new();
//!         data.object(|o| {
//!             o.key("pod").string(d.name);
//!         });
//!         Ok(vec![Event::new(data)])
//!     })
//! }
//!
//! deltarouter::handler!(setup);
//! # fn main() {}
//! ```
//!
//! The crate needs no other crate. Outside of WebAssembly it is the same, with the host functions of [`host::fake`], so that a
//! handler's own tests run on any machine: see [`test`].

use std::time::Duration;

mod batch;
pub mod host;
pub mod json;
#[cfg(not(target_arch = "wasm32"))]
pub mod test;

#[doc(hidden)]
pub use batch::Server;

/// The type of a change. Deleted means gone; an object that merely left a source's selector is Deselected. With Sync nothing
/// happened: a resync repeats every object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Added = 1,
    Updated,
    Deleted,
    Deselected,
    Sync,
    /// Of a route with a condition (when): it holds.
    Entered,
    /// Of a route with a condition: it was reported as Entered, and holds no longer.
    Left,
}

impl Op {
    /// The op as the router's configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Op::Added => "added",
            Op::Updated => "updated",
            Op::Deleted => "deleted",
            Op::Deselected => "deselected",
            Op::Sync => "sync",
            Op::Entered => "entered",
            Op::Left => "left",
        }
    }

    /// The inverse of [`Op::name`].
    pub fn parse(name: &str) -> Option<Op> {
        [Op::Added, Op::Updated, Op::Deleted, Op::Deselected, Op::Sync, Op::Entered, Op::Left].into_iter().find(|op| op.name() == name)
    }
}

/// One change of one object.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    pub op: Op,
    /// The name that the router's configuration gives the source.
    pub source: &'a str,
    pub cluster: &'a str,
    /// `[group/]version/resource`, such as v1/pods.
    pub resource: &'a str,
    /// Such as Pod; may be empty.
    pub kind: &'a str,
    /// Empty for a cluster-scoped object.
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub resource_version: &'a str,
    /// After the change; for Deleted and Deselected the last state.
    pub object: json::Value<'a>,
    /// Before the change; [`json::Value::ABSENT`] for Added and Sync, and where the source keeps no objects.
    pub old_object: json::Value<'a>,
    /// The object was there before the router was, and is delivered for the first time.
    pub initial: bool,
    /// The change was inferred from a list: old_object is the last state known.
    pub stale: bool,
    /// Redelivered from the dead letters; the object may have changed since.
    pub redelivered: bool,
    /// Entered was due while the router was down.
    pub late: bool,
    /// A reminder: Entered was reported before.
    pub repeat: bool,
    /// When the condition of the route began to hold, in nanoseconds since 1970; 0: unknown.
    pub since_ns: i64,
    /// The number of deltas that the limit of the route suppressed before this one.
    pub suppressed: i64,
    /// The span of the delta in its route, in the form of W3C Trace Context, for the requests of the handler; empty: the
    /// router exports no traces.
    pub traceparent: &'a str,
    /// The values of the route's `with`, an object; [`json::Value::ABSENT`]: the route has none.
    pub with: json::Value<'a>,
    /// The event that an upstream route made of the delta; None: the delta comes from its source.
    pub event: Option<RouteEvent<'a>>,
    /// When the router saw the change, in nanoseconds since 1970.
    pub seen_ns: i64,
    /// In the batch, for [`host::emit`].
    pub index: u32,
}

impl<'a> Delta<'a> {
    /// A field of the object: `d.path("status.phase")`. Dots separate the keys; in a key, `\.` is a dot. The router finds the
    /// field, which is several times faster than [`json::Value::path`].
    pub fn path(&self, path: &str) -> json::Value<'a> {
        host::field(self.index, 0, self.object, path)
    }

    /// [`Delta::path`] for the object before the change.
    pub fn old_path(&self, path: &str) -> json::Value<'a> {
        host::field(self.index, 1, self.old_object, path)
    }
}

/// An event that another route made.
#[derive(Clone, Copy, Debug)]
pub struct RouteEvent<'a> {
    pub id: &'a str,
    /// The CloudEvents type.
    pub kind: &'a str,
    pub source: &'a str,
    pub subject: &'a str,
    /// The route that made it.
    pub route: &'a str,
    /// In nanoseconds since 1970.
    pub time_ns: i64,
    pub data: json::Value<'a>,
}

/// One event to deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    kind: String,
    subject: String,
    data: String,
}

impl Event {
    /// An event with the JSON of its data: a [`json::Writer`], or a text that is JSON.
    pub fn new(data: impl Into<String>) -> Event {
        Event { data: data.into(), ..Event::default() }
    }

    /// The CloudEvents type; without it, `io.deltarouter.<op>`.
    pub fn with_type(mut self, kind: &str) -> Event {
        self.kind = kind.to_string();
        self
    }

    /// The CloudEvents subject; without it, namespace/name of the object.
    pub fn with_subject(mut self, subject: &str) -> Event {
        self.subject = subject.to_string();
        self
    }

    /// Appends [`Event::to_json`].
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        if self.kind.is_empty() && self.subject.is_empty() && !self.data.is_empty() {
            out.extend_from_slice(b"{\"data\":");
            out.extend_from_slice(self.data.as_bytes());
            out.push(b'}');
        } else {
            out.extend_from_slice(self.to_json().as_bytes());
        }
    }

    /// The event in the form of the ABI.
    pub fn to_json(&self) -> String {
        let mut w = json::Writer::new();
        w.object(|o| {
            if !self.kind.is_empty() {
                o.key("type").string(&self.kind);
            }
            if !self.subject.is_empty() {
                o.key("subject").string(&self.subject);
            }
            o.key("data").raw(&self.data);
        });
        w.into()
    }
}

/// The result of a handler: events, none if there is nothing to deliver, or the reason why it has none. `?` makes a failure of any error that
/// is a text.
pub type Verdict = Result<Vec<Event>, Stop>;

/// The reason why a delta has no events. A message must not contain parts of the object, because it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Failed: the route's retry and onFailure decide.
    Fail(String),
    /// Retried, not before the given time; zero: according to the route's retry.
    Retry(String, Duration),
    /// Done, counted as dropped.
    Drop,
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        Stop::Fail(message)
    }
}

impl From<&str> for Stop {
    fn from(message: &str) -> Stop {
        Stop::Fail(message.to_string())
    }
}

impl From<host::Errno> for Stop {
    fn from(err: host::Errno) -> Stop {
        Stop::Fail(err.to_string())
    }
}

/// Makes the module's exports. The setup is called once per instance with the handler's `config` (null if there is none); its error
/// ends the start of the router with its message.
#[macro_export]
macro_rules! handler {
    ($setup:expr) => {
        #[cfg(target_arch = "wasm32")]
        mod deltarouter_exports {
            std::thread_local! {
                // An instance runs one call at a time.
                static SERVER: std::cell::RefCell<$crate::Server> = std::cell::RefCell::new($crate::Server::new());
            }

            #[no_mangle]
            pub extern "C" fn rtr_abi_version() -> u32 {
                1
            }

            #[no_mangle]
            pub extern "C" fn rtr_alloc(size: u32) -> u32 {
                SERVER.with(|s| s.borrow_mut().reserve(size))
            }

            #[no_mangle]
            pub extern "C" fn rtr_init(config: u32, size: u32) -> u32 {
                SERVER.with(|s| s.borrow_mut().init(config, size, |c| super::deltarouter_start(c)))
            }

            #[no_mangle]
            pub extern "C" fn rtr_handle(batch: u32, size: u32) -> u64 {
                SERVER.with(|s| s.borrow_mut().handle(batch, size))
            }
        }

        #[cfg(target_arch = "wasm32")]
        fn deltarouter_start(config: $crate::json::Value) -> Result<Box<dyn FnMut(&$crate::Delta) -> $crate::Verdict>, String> {
            Ok(Box::new($setup(config)?))
        }
    };
}
