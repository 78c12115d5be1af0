package difference_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/history/difference"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const limit = 1 << 20

// pod returns a pod of 5 KB with a version and a number of restarts.
func pod(version, restarts int, conditions ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"metadata":{"namespace":"shop","name":"web-7d9c5b7f4d-x2x9z","resourceVersion":"%d","labels":{"app":"web"}},"spec":{"nodeName":"n1"`, version)
	for field := range 60 {
		fmt.Fprintf(&b, `,"field%d":{"name":"a name of some length","values":["one","two",{"three":%d}]}`, field, field*7)
	}
	fmt.Fprintf(&b, `},"status":{"phase":"Running","conditions":[%s],"restarts":%d,"hostIP":"10.1.2.3"}}`, strings.Join(conditions, ","), restarts)
	return b.String()
}

func condition(kind, status, at string) string {
	return fmt.Sprintf(`{"type":%q,"status":%q,"lastProbeTime":null,"lastTransitionTime":%q}`, kind, status, at)
}

// TestSize lists changes of an object and the size that their differences may have.
func TestSize(t *testing.T) {
	ready, first := condition("Ready", "True", "2026-11-30T12:00:00Z"), condition("Initialized", "True", "2026-11-30T11:00:00Z")
	old := pod(1000001, 1, first, ready)
	for name, tt := range map[string]struct {
		now  string
		most int
	}{
		"none":                {old, 5},
		"version":             {pod(1000002, 1, first, ready), 12},
		"shorter":             {pod(100, 1, first, ready), 20},
		"longer":              {pod(1000002, 100, first, ready), 25},
		"condition":           {pod(1000002, 1, first, condition("Ready", "False", "2026-11-30T12:10:05Z")), 45},
		"condition added":     {pod(1000002, 1, first, condition("PodScheduled", "True", "2026-11-30T10:00:05Z"), ready), 75},
		"conditions in order": {pod(1000002, 1, ready, first), 40},
		"condition removed":   {pod(1000002, 1, ready), 25},
		"to nothing":          {"", 1},
		"other text":          {strings.Repeat("x", 100), 101},
	} {
		t.Run(name, func(t *testing.T) {
			d := new(difference.Differ).Append(nil, old, tt.now)
			got, err := difference.Apply(old, d, limit)
			must.Succeed(t, err)
			if got != tt.now {
				t.Errorf("got %q", got)
			}
			if len(d) > tt.most {
				t.Errorf("%d bytes, want at most %d", len(d), tt.most)
			}
		})
	}
}

// TestProperty changes texts at random.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\"{}:,1")), 0, 300, -1)
		old := text.Draw(t, "old")
		now := old
		for range rapid.IntRange(0, 5).Draw(t, "edits") {
			at := rapid.IntRange(0, len(now)).Draw(t, "at")
			end := rapid.IntRange(at, min(len(now), at+20)).Draw(t, "end")
			now = now[:at] + rapid.StringOfN(rapid.SampledFrom([]rune("xyab")), 0, 100, -1).Draw(t, "text") + now[end:]
		}
		d := new(difference.Differ).Append([]byte("before"), old, now)
		if got, err := difference.Apply(old, d[len("before"):], len(now)); err != nil || got != now {
			t.Fatalf("got %q, %v; want %q", got, err, now)
		}
		if len(now) > 0 {
			if got, err := difference.Apply(old, d[len("before"):], len(now)-1); err == nil {
				t.Fatalf("a text beyond the limit: %q", got)
			}
		}
	})
}

// FuzzApply applies damaged differences.
func FuzzApply(f *testing.F) {
	f.Add("an old text of some length", new(difference.Differ).Append(nil, "an old text of some length", "a new text of some length"))
	f.Fuzz(func(t *testing.T, old string, d []byte) {
		if got, err := difference.Apply(old, d, 1000); err == nil && len(got) > 1000 {
			t.Errorf("%d bytes", len(got))
		}
	})
}

// FuzzAppend compares arbitrary texts.
func FuzzAppend(f *testing.F) {
	f.Add(pod(1, 2), pod(2, 3))
	f.Fuzz(func(t *testing.T, old, now string) {
		if got, err := difference.Apply(old, new(difference.Differ).Append(nil, old, now), len(now)); err != nil || got != now {
			t.Errorf("got %q, %v; want %q", got, err, now)
		}
	})
}

// BenchmarkAppend measures the difference of a usual change, and of one that moves the rest of the
// text.
func BenchmarkAppend(b *testing.B) {
	ready, first := condition("Ready", "True", "2026-11-30T12:00:00Z"), condition("Initialized", "True", "2026-11-30T11:00:00Z")
	old := pod(1000001, 1, first, ready)
	for name, now := range map[string]string{
		"same-length": pod(1000002, 2, first, ready),
		"moved":       pod(1000002, 2, first, condition("PodScheduled", "True", "2026-11-30T10:00:05Z"), ready),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var d []byte
			var by difference.Differ
			for b.Loop() {
				d = by.Append(d[:0], old, now)
			}
			b.ReportMetric(float64(len(d)), "bytes")
		})
	}
}
