package main

import (
	"strings"
	"testing"
)

// stream is the output of go test -json of three packages: p has a failed and a skipped test, q
// panics, r passes, and s does not build.
const stream = `go: downloading example.com/x v1.0.0
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    p_test.go:1: wrong\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    p_test.go:2: promtool is not in PATH\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    p_test.go:3: SKIPPED: promtool is not in PATH\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1.0s\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Test":"TestD","Output":"panic: no\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}
{"Action":"output","Package":"r","Test":"TestE","Output":"noise\n"}
{"Action":"pass","Package":"r","Test":"TestE"}
{"Action":"output","Package":"r","Output":"PASS\n"}
{"Action":"output","Package":"r","Output":"ok  \tr\t(cached)\n"}
{"Action":"pass","Package":"r"}
{"ImportPath":"s","Action":"build-output","Output":"s.go:1: syntax error\n"}
{"Action":"output","Package":"s","Output":"FAIL\ts [build failed]\n"}
{"Action":"fail","Package":"s"}
`

func TestShow(t *testing.T) {
	var out strings.Builder
	var left leftOut
	if err := show(&out, strings.NewReader(stream), &left); err != nil {
		t.Fatal(err)
	}
	left.print(&out)
	const want = "go: downloading example.com/x v1.0.0\n" +
		"=== RUN   TestA\n    p_test.go:1: wrong\nFAIL\tp\t1.0s\n" +
		"FAIL\tq\t0.1s\npanic: no\n" +
		"ok  \tr\t(cached)\n" +
		"s.go:1: syntax error\nFAIL\ts [build failed]\n" +
		"left out: promtool is not in PATH (2 tests)\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestNative(t *testing.T) {
	var out strings.Builder
	var left leftOut
	if err := copyLines(&out, strings.NewReader("ok  \tsdk/c\nSKIPPED\tnative tests in Rust: rustc is not installed\n"), &left); err != nil {
		t.Fatal(err)
	}
	left.print(&out)
	if want := "ok  \tsdk/c\nleft out: native tests in Rust: rustc is not installed\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
