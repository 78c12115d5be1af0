package rawjson_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

func pod(b *testing.B) string {
	b.Helper()
	data, err := os.ReadFile("testdata/pod.json")
	must.Succeed(b, err)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	return string(data)
}

func BenchmarkScan(b *testing.B) {
	src := pod(b)
	for b.Loop() {
		if _, err := rawjson.Scan(src, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFinder(b *testing.B) {
	src := pod(b)
	f := rawjson.NewFinder()
	f.Skip(0, "metadata", "managedFields")
	for b.Loop() {
		if _, spans, err := f.Scan(src, 0); err != nil || len(spans) != 1 {
			b.Fatal(err)
		}
	}
}

func BenchmarkValid(b *testing.B) { // encoding/json, for comparison
	src := []byte(pod(b))
	for b.Loop() {
		if !json.Valid(src) {
			b.Fatal("invalid")
		}
	}
}

func BenchmarkPath(b *testing.B) {
	v := rawjson.Trim(pod(b))
	for b.Loop() {
		if v.Path("status", "phase") == "" {
			b.Fatal("missing")
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	src := pod(b)
	for b.Loop() {
		must.Succeed(b, rawjson.Check(src))
	}
}

// BenchmarkCheckBoth checks a pod and its state after a change of two fields.
func BenchmarkCheckBoth(b *testing.B) {
	src := pod(b)
	next := strings.NewReplacer(`"resourceVersion":"`, `"resourceVersion":"1`, `"Running"`, `"Failed"`).Replace(src)
	for b.Loop() {
		must.Succeed(b, rawjson.CheckBoth(src, next))
	}
}
