package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// allow queries a limit, and returns the result.
func allow(l *rules.Limit, key string, n int, now time.Time) (suppressed int, ok bool) {
	pass := l.Allow(key, n, now)
	if pass == nil {
		return 0, false
	}
	return pass.Suppressed, true
}

func TestLimit(t *testing.T) {
	// Guarantee: limit
	type step struct {
		at         time.Duration
		key        string
		ok         bool
		suppressed int // reported
	}
	tests := []struct {
		name  string
		cfg   rules.LimitConfig
		steps []step
	}{
		{"one in ten minutes", rules.LimitConfig{Every: 10 * time.Minute}, []step{
			{0, "a", true, 0},
			{time.Minute, "a", false, 0},
			{10*time.Minute - 1, "a", false, 0},
			{10 * time.Minute, "a", true, 2},
			{20*time.Minute - 1, "a", false, 0},
			{time.Hour, "a", true, 1},
			{time.Hour, "a", false, 0},
		}},
		{"keys do not know of each other", rules.LimitConfig{Every: time.Minute}, []step{
			{0, "a", true, 0}, {0, "b", true, 0}, {1, "a", false, 0}, {2, "b", false, 0}, {time.Minute, "", true, 0}, {time.Minute, "a", true, 1},
		}},
		{"a burst, then one at a time", rules.LimitConfig{Every: time.Minute, Burst: 3}, []step{
			{0, "a", true, 0},
			{0, "a", true, 0},
			{0, "a", true, 0},
			{0, "a", false, 0},
			{time.Minute, "a", true, 1},
			{time.Minute, "a", false, 0},
			{3 * time.Minute, "a", true, 1},
			{3 * time.Minute, "a", true, 0},
			{3 * time.Minute, "a", false, 0},
		}},
		{"quiet does not add up", rules.LimitConfig{Every: time.Minute, Burst: 2}, []step{
			{time.Hour, "a", true, 0}, {time.Hour, "a", true, 0}, {time.Hour, "a", false, 0},
		}},
		{"the oldest key goes when there are too many", rules.LimitConfig{Every: time.Hour, MaxKeys: 2}, []step{
			{0, "a", true, 0}, {1, "b", true, 0}, {2, "a", false, 0}, {3, "c", true, 0}, {4, "a", false, 0}, {5, "b", true, 0},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := rules.NewLimit(tt.cfg, nil, start)
			for i, s := range tt.steps {
				suppressed, ok := allow(l, s.key, 1, start.Add(s.at))
				if ok != s.ok || suppressed != s.suppressed {
					t.Errorf("step %d: %v, %d suppressed, want %v, %d", i, ok, suppressed, s.ok, s.suppressed)
				}
			}
		})
	}
}

// TestLimitForgets: a key whose state equals that of a new one takes no memory, neither here nor on
// disk.
func TestLimitForgets(t *testing.T) {
	l := rules.NewLimit(rules.LimitConfig{Every: time.Minute}, nil, start)
	for i := range 1000 {
		l.Allow(fmt.Sprint(i), 1, start)
	}
	l.Allow("0", 1, start) // suppressed
	if n := len(l.Dirty(start)); n != 1000 {
		t.Fatalf("%d records", n)
	}
	now := start.Add(2 * time.Minute)
	for range 1000 {
		l.Allow("other", 1, now)
	}
	if n := l.Len(); n != 2 {
		t.Errorf("%d keys are known, want the one of which something was suppressed, and the new one", n)
	}
	gone := 0
	for _, r := range l.Dirty(now) {
		if r.Value == nil {
			gone++
		}
	}
	if gone != 999 {
		t.Errorf("%d are gone on disk, want 999", gone)
	}
	now = now.Add(25 * time.Hour)
	l.Allow("other", 1, now)
	if suppressed, ok := allow(l, "0", 1, now); !ok || suppressed != 0 {
		t.Errorf("after a day %d are reported as suppressed", suppressed)
	}
}

// TestLimitTooMany: evicted keys are counted.
func TestLimitTooMany(t *testing.T) {
	l := rules.NewLimit(rules.LimitConfig{Every: time.Minute, MaxKeys: 10}, nil, start)
	for i := range 25 {
		l.Allow(fmt.Sprint(i), 1, start)
	}
	if n, forgotten := l.Len(), l.TakeForgotten(); n != 10 || forgotten != 15 || l.TakeForgotten() != 0 {
		t.Errorf("%d are known, %d forgotten", n, forgotten)
	}
}

// TestLimitClock: within a process the monotonic clock counts; between two processes the wall clock
// does, within bounds.
func TestLimitClock(t *testing.T) {
	// Guarantee: limit-kept
	began := time.Now()
	l := rules.NewLimit(rules.LimitConfig{Every: time.Hour}, nil, began)
	l.Allow("a", 1, began)
	l.Allow("a", 1, began)
	records := l.Dirty(began)
	for _, tt := range []struct {
		name string
		now  time.Time // of the next process
		wait time.Duration
	}{
		{"down for a while", began.Add(20 * time.Minute), 40 * time.Minute},
		{"down for long", began.Add(2 * time.Hour), 0},
		{"the wall clock went back", began.Add(-5000 * time.Hour), time.Hour},
	} {
		next := rules.NewLimit(rules.LimitConfig{Every: time.Hour}, nil, tt.now)
		for _, r := range records {
			must.Succeed(t, next.Restore(rules.Record{Key: r.Key, Value: r.Value}, tt.now))
		}
		if tt.wait > 0 {
			if _, ok := allow(next, "a", 1, tt.now.Add(tt.wait-1)); ok {
				t.Errorf("%s: it may pass too early", tt.name)
			}
		}
		if _, ok := allow(next, "a", 1, tt.now.Add(tt.wait)); !ok {
			t.Errorf("%s: it has to wait for more than %v", tt.name, tt.wait)
		}
	}
}

// TestLimitConfigure: a changed limit keeps its keys.
func TestLimitConfigure(t *testing.T) {
	l := rules.NewLimit(rules.LimitConfig{Every: time.Hour}, nil, start)
	l.Allow("a", 1, start)
	l.Allow("a", 1, start)
	l.Dirty(start)
	l.Configure(rules.LimitConfig{Every: time.Minute}, start)
	if n := len(l.Dirty(start)); n != 1 {
		t.Errorf("%d records changed", n)
	}
	if _, ok := allow(l, "a", 1, start.Add(59*time.Second)); ok {
		t.Error("it may pass at once")
	}
	if suppressed, ok := allow(l, "a", 1, start.Add(time.Minute)); !ok || suppressed != 2 {
		t.Errorf("after the new time: %v, %d suppressed", ok, suppressed)
	}
}

// TestLimitRecords: a damaged record is an error, and an abandoned key is deleted on disk, too.
func TestLimitRecords(t *testing.T) {
	l := rules.NewLimit(rules.LimitConfig{Every: time.Hour}, nil, start)
	for _, value := range []string{"", "\x80", "\x01", "\x01\x02\x03", "\x01\xff\xff\xff\xff\xff\xff\x01"} {
		if err := l.Restore(rules.Record{Key: "a", Value: []byte(value)}, start); err == nil {
			t.Errorf("%q was taken", value)
		}
	}
	l.Allow("a", 1, start)
	records := l.Dirty(start)
	l.Allow("b", 1, start)
	l.Abandon()
	if left := l.Dirty(start); l.Len() != 0 || len(left) != 1 || left[0].Key != records[0].Key || left[0].Value != nil {
		t.Errorf("%d keys and records %v", l.Len(), left)
	}
}

// TestLimitModel: random calls, cuts, crashes (which lose the calls since the last cut, on both
// sides), restarts, and jumps of the wall clock. In any time t no more than burst + t/every of a
// key pass, and each suppressed delta is reported once or is still counted.
func TestLimitModel(t *testing.T) {
	// Guarantee: limit
	rapid.Check(t, func(t *rapid.T) {
		cfg := rules.LimitConfig{
			Every: time.Duration(rapid.IntRange(1, 20).Draw(t, "every")) * time.Second, Burst: rapid.IntRange(1, 4).Draw(t, "burst"),
		}
		now := start
		l := rules.NewLimit(cfg, nil, now)
		disk := map[string][]byte{}
		passed, waiting := map[string][]time.Time{}, map[string]int{}
		// a pass whose delta is still pending
		type open struct {
			pass *rules.Pass
			key  string
			at   time.Time
		}
		var opened []open
		// a pass was returned after a later one, or is lost: the limit may allow more
		unsure := map[string]bool{}
		savedPassed, savedWaiting := map[string][]time.Time{}, map[string]int{}
		cut := func() {
			for _, r := range l.Dirty(now) {
				if r.Value == nil {
					delete(disk, r.Key)
				} else {
					disk[r.Key] = r.Value
				}
			}
			savedPassed, savedWaiting = copyTimes(passed), maps.Clone(waiting)
		}
		restart := func() {
			passed, waiting = copyTimes(savedPassed), maps.Clone(savedWaiting)
			opened = nil
			l = rules.NewLimit(cfg, nil, now)
			for _, key := range slices.Sorted(maps.Keys(disk)) {
				must.Succeed(t, l.Restore(rules.Record{Key: key, Value: disk[key]}, now))
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 14).Draw(t, "what") {
			case 0:
				cut()
			case 1:
				restart()
			case 2, 3:
				if len(opened) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(opened)-1).Draw(t, "which")
				o := opened[i]
				opened = slices.Delete(opened, i, i+1)
				l.Return(o.pass, o.pass.Suppressed, now)
				waiting[o.key] += o.pass.Suppressed
				times := passed[o.key]
				at := slices.Index(times, o.at)
				unsure[o.key] = unsure[o.key] || at < len(times)-1
				passed[o.key] = slices.Delete(times, at, at+1)
			default:
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
				n := rapid.IntRange(1, 3).Draw(t, "n")
				pass := l.Allow(key, n, now)
				if pass == nil {
					waiting[key] += n
					if free(passed[key], now, cfg) && !unsure[key] {
						t.Fatalf("%q had to wait in vain", key)
					}
					continue
				}
				if pass.Suppressed != waiting[key] {
					t.Fatalf("of %q %d are reported as suppressed, want %d", key, pass.Suppressed, waiting[key])
				}
				opened = append(opened, open{pass, key, now})
				waiting[key] = 0
				passed[key] = append(passed[key], now)
				within(t, key, passed[key], cfg)
			}
		}
	})
}

// within checks every interval that ends with the last pass.
func within(t *rapid.T, key string, passed []time.Time, cfg rules.LimitConfig) {
	last := passed[len(passed)-1]
	for i, first := range passed {
		if n, most := len(passed)-i, cfg.Burst+int(last.Sub(first)/cfg.Every); n > most {
			t.Fatalf("of %q %d passed in %v, at most %d may", key, n, last.Sub(first), most)
		}
	}
}

// free reports whether one more could pass without exceeding the limit in any interval.
func free(passed []time.Time, now time.Time, cfg rules.LimitConfig) bool {
	for i, first := range passed {
		if len(passed)-i+1 > cfg.Burst+int(now.Sub(first)/cfg.Every) {
			return false
		}
	}
	return true
}

func copyTimes(m map[string][]time.Time) map[string][]time.Time {
	c := map[string][]time.Time{}
	for key, times := range m {
		c[key] = slices.Clone(times)
	}
	return c
}

// TestLimitReturn: a delta without an event does not count, and the next one, which may pass at
// once, reports the suppressed count.
func TestLimitReturn(t *testing.T) {
	// Guarantee: limit
	l := rules.NewLimit(rules.LimitConfig{Every: 10 * time.Minute}, nil, start)
	first := l.Allow("a", 1, start)
	if l.Allow("a", 1, start) != nil {
		t.Fatal("two pass at once")
	}
	l.Return(first, 0, start)
	second := l.Allow("a", 1, start.Add(time.Minute))
	if second == nil || second.Suppressed != 1 {
		t.Fatalf("after the first was taken back: %+v", second)
	}
	l.Return(second, 1, start.Add(time.Minute))
	if third, ok := allow(l, "a", 1, start.Add(2*time.Minute)); !ok || third != 1 {
		t.Errorf("after the second was taken back: %v, %d suppressed", ok, third)
	}
	if l.Return(second, 0, start.Add(2*time.Minute)); l.Allow("a", 1, start.Add(12*time.Minute-1)) != nil {
		t.Error("what was taken back twice made room")
	}

	// A pass followed by another one is lost: without it that one may have come too early.
	l = rules.NewLimit(rules.LimitConfig{Every: 10 * time.Minute}, nil, start)
	early := l.Allow("a", 1, start)
	if l.Allow("a", 1, start.Add(10*time.Minute)) == nil {
		t.Fatal("it has to wait for too long")
	}
	if l.Return(early, 0, start.Add(10*time.Minute)); l.Allow("a", 1, start.Add(11*time.Minute)) != nil {
		t.Error("two pass within a minute")
	}

	// Of an evicted key only the suppressed count is kept.
	l = rules.NewLimit(rules.LimitConfig{Every: time.Minute, MaxKeys: 1}, nil, start)
	gone, other := l.Allow("a", 1, start), l.Allow("b", 1, start)
	l.Return(gone, 3, start)
	if suppressed, ok := allow(l, "a", 1, start); !ok || suppressed != 3 {
		t.Errorf("of a forgotten key: %v, %d suppressed", ok, suppressed)
	}
	if l.Return(other, 0, start); l.Len() != 1 {
		t.Errorf("%d keys", l.Len())
	}
}

func BenchmarkAllow(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	l := rules.NewLimit(rules.LimitConfig{Every: time.Minute}, nil, start)
	now := start
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Millisecond)
		l.Allow(keys[i%len(keys)], 1, now)
	}
}

// The present state of a key takes precedence over a restored record.
func TestLimitKnown(t *testing.T) {
	cfg := rules.LimitConfig{Every: time.Hour}
	old := rules.NewLimit(cfg, nil, start)
	allow(old, "a", 1, start)
	records := old.Dirty(start)
	l := rules.NewLimit(cfg, nil, start)
	allow(l, "a", 1, start.Add(50*time.Minute))
	allow(l, "a", 3, start.Add(50*time.Minute))
	for _, r := range records {
		must.Succeed(t, l.Restore(r, start.Add(50*time.Minute)))
	}
	if _, ok := allow(l, "a", 1, start.Add(time.Hour)); ok || l.Len() != 1 {
		t.Errorf("passes: %v, of %d keys", ok, l.Len())
	}
	if n, ok := allow(l, "a", 1, start.Add(2*time.Hour)); !ok || n != 4 {
		t.Errorf("passes: %v, %d were suppressed", ok, n)
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
