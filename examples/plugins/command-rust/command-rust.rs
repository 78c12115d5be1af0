// Reports the phase of pods. It is a plain program for stdin and stdout, and finds fields by search:
// a real one would have a library for JSON.
use std::io::{self, BufRead};

/// field returns the text value behind a key, or nothing.
fn field<'a>(line: &'a str, key: &str) -> &'a str {
    match line.find(key) {
        Some(at) => line[at + key.len()..].split('"').next().unwrap_or(""),
        None => "",
    }
}

fn main() {
    for line in io::stdin().lock().lines() {
        let line = line.expect("stdin");
        let (name, phase) = (field(&line, "\"name\":\""), field(&line, "\"phase\":\""));
        println!("{{\"events\":[{{\"data\":{{\"pod\":\"{}\",\"phase\":\"{}\"}}}}]}}", name, phase);
    }
    eprintln!("no more deltas");
}
