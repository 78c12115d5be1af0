package history

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/history/segment"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// at draws a time near the time of a record, to the microsecond.
func at(t *rapid.T, of time.Time, label string) time.Time {
	return of.Add(-time.Duration(rapid.Int64Range(-1e6, 1e12).Draw(t, label)) * time.Microsecond)
}

func anyObject(t *rapid.T) Object {
	text := rapid.SampledFrom([]string{"", "a", "b", "ü"})
	return Object{text.Draw(t, "source"), text.Draw(t, "kind"), event.Key{Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name")}, text.Draw(t, "uid")}
}

// anyChange draws a change whose states are the last of the object, others, or unknown.
func anyChange(t *rapid.T, now time.Time, states map[Object]*Change) *Change {
	c := &Change{Object: anyObject(t), At: now, Seen: at(t, now, "seen"), Op: rapid.SampledFrom(event.SourceOps()).Draw(t, "op")}
	c.Initial, c.Stale, c.Version = rapid.Bool().Draw(t, "initial"), rapid.Bool().Draw(t, "stale"), rapid.StringMatching("[0-9]{0,9}").Draw(t, "version")
	if c.Texts = rapid.Bool().Draw(t, "texts"); !c.Texts {
		return c
	}
	state := func(label string) string {
		return rapid.SampledFrom([]string{"", strings.Repeat("long ", 30), `{"a":1}`}).Draw(t, label) + rapid.StringN(0, 5, -1).Draw(t, label)
	}
	if last := states[c.Object]; last != nil && rapid.IntRange(0, 3).Draw(t, "other") > 0 {
		c.Before, c.was = last.After, last.Version
	} else {
		c.Before = state("before")
	}
	if rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
		c.After = state("after")
	}
	states[c.Object] = c
	return c
}

func anyDecision(t *rapid.T, now time.Time) *Decision {
	text := rapid.StringN(0, 10, -1)
	d := &Decision{
		Object: anyObject(t), At: now, Route: text.Draw(t, "route"), Op: rapid.SampledFrom(event.Ops()).Draw(t, "op"), Version: text.Draw(t, "version"),
		Outcome: Outcome(rapid.IntRange(1, len(outcomeNames)-1).Draw(t, "outcome")), Seen: at(t, now, "seen"), Initial: rapid.Bool().Draw(t, "initial"),
		Stale: rapid.Bool().Draw(t, "stale"), Redelivered: rapid.Bool().Draw(t, "redelivered"), Events: rapid.IntRange(0, 300).Draw(t, "events"),
		Suppressed: rapid.IntRange(0, 300).Draw(t, "suppressed"), Reason: text.Draw(t, "reason"), Skipped: rapid.IntRange(0, 3).Draw(t, "skipped"),
	}
	d.Repeat, d.Rule, d.Into, d.Undone = rapid.IntRange(0, 3).Draw(t, "repeat"), text.Draw(t, "rule"), text.Draw(t, "into"), rapid.Bool().Draw(t, "undone")
	if rapid.Bool().Draw(t, "until") {
		d.Until, d.Latest = at(t, now, "until"), at(t, now, "latest")
	}
	if rapid.Bool().Draw(t, "matched") {
		d.Matched = at(t, now, "matched")
	}
	if rapid.Bool().Draw(t, "taken") {
		d.Taken = at(t, now, "taken")
	}
	for range rapid.IntRange(0, 3).Draw(t, "steps") {
		d.Steps = append(d.Steps, Step{
			StepKind(rapid.IntRange(0, 2).Draw(t, "step")), text.Draw(t, "name"), at(t, now, "step at"),
			time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "took")) * time.Microsecond, rapid.IntRange(0, 100).Draw(t, "size"), text.Draw(t, "err"),
		})
	}
	return d
}

// TestCodec encodes and decodes the records of one segment: all of them, and those of one object.
func TestCodec(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		e, all, some := newEncoder(), newDecoder(), newDecoder()
		states := make(map[Object]*Change)
		for i := range rapid.IntRange(1, 30).Draw(t, "records") {
			now := start.Add(time.Duration(i) * time.Second)
			var record any
			var object Object
			var text []byte
			if rapid.IntRange(0, 9).Draw(t, "begin") == 0 {
				e.begin(&Begin{})
			}
			if rapid.Bool().Draw(t, "decision") {
				d := anyDecision(t, now)
				record, object, text = d, d.Object, e.decision(d)
			} else {
				c := anyChange(t, now, states)
				record, object, text = c, c.Object, e.change(c)
			}
			decoders := []*decoder{all}
			if object.Key.Name == "a" {
				decoders = append(decoders, some)
			}
			for _, d := range decoders {
				got, err := d.decode(segment.Record{At: now, Data: bytes.Clone(text)})
				if err != nil || !equal(got, record) {
					t.Fatalf("got  %+v, %v\nwant %+v", got, err, record)
				}
			}
		}
	})
}

// equal compares records with times of any location.
func equal(a, b any) bool {
	return reflect.DeepEqual(utc(a), utc(b))
}

func utc(record any) any {
	switch r := record.(type) {
	case *Change:
		c := *r
		c.At, c.Seen, c.was = c.At.UTC(), c.Seen.UTC(), ""
		return c
	case *Decision:
		d := *r
		d.Steps = nil
		for _, s := range r.Steps {
			s.At = s.At.UTC()
			d.Steps = append(d.Steps, s)
		}
		for _, one := range []*time.Time{&d.At, &d.Seen, &d.Matched, &d.Taken, &d.Until, &d.Latest} {
			if *one = one.UTC(); one.IsZero() {
				*one = time.Time{}
			}
		}
		return d
	}
	return record
}

// TestSizes bounds the bytes of records of a pod, before compression.
func TestSizes(t *testing.T) {
	e := newEncoder()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	o := Object{"pods", "Pod", event.Key{Namespace: "shop", Name: "web-7d9c5b7f4d-x2x9z"}, "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"}
	state := func(version int) string {
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"},"spec":%q,"status":{"ready":%t}}`, version, strings.Repeat("text ", 1000), version%2 == 0)
	}
	var sizes []int
	for v := range 3 {
		c := &Change{Object: o, At: now, Seen: now.Add(-time.Millisecond), Op: event.Updated, Version: fmt.Sprint(1000001 + v), Texts: true, Before: state(1000000 + v), After: state(1000001 + v), was: fmt.Sprint(1000000 + v)}
		sizes = append(sizes, len(e.change(c)))
	}
	d := &Decision{Object: o, At: now, Route: "crashes", Op: event.Updated, Version: "1000001", Outcome: Delivered, Seen: now.Add(-3 * time.Millisecond), Matched: now.Add(-2 * time.Millisecond), Taken: now.Add(-time.Millisecond), Events: 1, Steps: []Step{{Deliver, "hook", now.Add(-time.Millisecond), time.Millisecond, 1, ""}}}
	sizes = append(sizes, len(e.decision(d)))
	held := &Decision{Object: o, At: now, Route: "crashes", Op: event.Entered, Version: "1000001", Outcome: Held, Seen: now.Add(-time.Millisecond), Rule: "for", Until: now.Add(time.Hour)}
	sizes = append(sizes, len(e.decision(held)))
	for i, most := range []int{5250, 50, 50, 55, 40} {
		if sizes[i] > most {
			t.Errorf("record %d has %d bytes, want at most %d", i, sizes[i], most)
		}
	}
}

// TestEarlierVersions: the program before the records of rules skips them, and reads everything
// else: they define no object, and the new fields of decisions are behind the others.
func TestEarlierVersions(t *testing.T) {
	o := Object{"pods", "Pod", event.Key{Namespace: "shop", Name: "web-0"}, "u"}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	records := []*Decision{
		{Object: o, At: now, Seen: now, Route: "r", Outcome: Held, Rule: "for", Until: now.Add(time.Minute)},
		{Object: o, At: now, Seen: now, Route: "r", Outcome: Suppressed, Rule: "limit", Until: now.Add(time.Minute), Repeat: 1},
		{Object: o, At: now, Seen: now, Route: "r", Outcome: Cancelled, Rule: "for"},
		{Object: o, At: now, Seen: now, Route: "r", Outcome: Coalesced, Into: "7"},
	}
	e, present, before := newEncoder(), newDecoder(), newDecoder()
	for i, d := range records {
		text := bytes.Clone(e.decision(d))
		if got, err := present.decode(segment.Record{At: now, Data: text}); err != nil || !equal(got, d) {
			t.Errorf("record %d: got %+v, %v", i, got, err)
		}
		if earlier := text[0] <= kindBegin; earlier != d.Outcome.IsEnd() {
			t.Errorf("record %d has kind %d", i, text[0])
		} else if !earlier {
			continue
		}
		got, err := before.decode(segment.Record{At: now, Data: text})
		if read, ok := got.(*Decision); err != nil || !ok || read.Object != o || read.Outcome != d.Outcome {
			t.Errorf("record %d: the decoder that skips the others got %+v, %v", i, got, err)
		}
	}
	// a segment of the version before: a decision that ends with its steps
	old := "\x02\x01\x04pods\x03Pod\x04shop\x05web-0\x01u\x01r\x02\x01\x019\x80\x04\x00\x01\x00\x01\x01\x04hook\x00\x05\x01\x00"
	want := &Decision{Object: o, At: now, Seen: now, Route: "r", Op: 2, Version: "9", Outcome: Delivered, Events: 1, Steps: []Step{{Deliver, "hook", now, 5 * time.Microsecond, 1, ""}}}
	if got, err := newDecoder().decode(segment.Record{At: now, Data: []byte(old)}); err != nil || !equal(got, want) {
		t.Errorf("of the version before: got %+v, %v", got, err)
	}
}

// FuzzDecode decodes records with any content.
func FuzzDecode(f *testing.F) {
	e := newEncoder()
	now := time.Unix(1e9, 0)
	f.Add(bytes.Clone(e.change(&Change{Object: Object{Source: "s"}, Op: event.Updated, Texts: true, Before: "a", After: "ab", At: now, Seen: now})),
		bytes.Clone(e.decision(&Decision{Object: Object{Source: "s"}, Route: "r", At: now, Seen: now, Steps: []Step{{Name: "x", At: now}}})))
	f.Add(bytes.Clone(e.decision(&Decision{Object: Object{Source: "s"}, Route: "r", At: now, Seen: now, Outcome: Held, Rule: "for", Until: now})),
		bytes.Clone(newEncoder().decision(&Decision{Object: Object{Source: "t"}, Route: "r", At: now, Seen: now, Outcome: Cancelled, Into: "1"})))
	f.Add(bytes.Clone(e.lost(&Lost{Number: 3, Reason: "x"})), bytes.Clone(e.begin(&Begin{Router: "dev"})))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := newDecoder()
		for _, data := range [][]byte{first, second, first} {
			if record, err := d.decode(segment.Record{At: now, Data: data}); err != nil && record != nil {
				t.Error("a damaged record was decoded")
			}
		}
	})
}
