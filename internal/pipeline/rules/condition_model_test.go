package rules_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// reference is a simple model: for each object, whether the condition holds, and its reports.
type reference struct {
	cfg     rules.ConditionConfig
	objects map[string]*held
	edges   []string
}

type held struct {
	uid      string
	version  int
	since    time.Time
	reported bool
	skipped  bool
	next     time.Time // zero: none is scheduled
	repeat   int
	late     bool
}

func (r *reference) enter(now time.Time, name string, h *held) {
	if h.reported {
		h.repeat++
	}
	r.report(now, "entered", name, h)
	h.reported, h.next = true, time.Time{}
	if r.cfg.Every > 0 {
		h.next = now.Add(r.cfg.Every)
	}
}

// until lets time pass.
func (r *reference) until(now, to time.Time) {
	for {
		var first string
		for name, h := range r.objects {
			if h.next.IsZero() || h.next.After(to) {
				continue
			}
			if first == "" || cmp.Or(h.next.Compare(r.objects[first].next), strings.Compare(name, first)) < 0 {
				first = name
			}
		}
		if first == "" {
			return
		}
		h := r.objects[first]
		if h.next.After(now) {
			now = h.next
		}
		r.enter(now, first, h)
	}
}

func (r *reference) report(now time.Time, op, name string, h *held) {
	text := fmt.Sprintf("%s %s %s/%s@%d since %s", now.Sub(start), op, name, h.uid, h.version, h.since.Sub(start))
	if op == "entered" && h.repeat > 0 {
		text += fmt.Sprintf(" repeat %d", h.repeat)
	}
	if op == "entered" && h.late {
		text += " late"
		h.late = false
	}
	if op == "entered" && !h.next.IsZero() && h.next.Before(now) { // it counts from its due time
		text += fmt.Sprintf(" seen %s", h.next.Sub(start))
	}
	r.edges = append(r.edges, text)
}

func (r *reference) see(now time.Time, op, name, uid string, version int) {
	op, not := strings.CutSuffix(op, "!")
	h := r.objects[name]
	if op != "deleted" && h != nil && h.uid != uid {
		if h.reported {
			r.report(now, "left", name, h)
		}
		delete(r.objects, name)
		h = nil
	}
	if op == "deleted" || not {
		if h != nil && h.reported {
			if op != "deleted" {
				h.version = version
			}
			r.report(now, "left", name, h)
		}
		delete(r.objects, name)
		return
	}
	if h == nil {
		h = &held{uid: uid, version: version, since: now, skipped: op == "existing" && !r.cfg.Existing}
		r.objects[name] = h
		switch {
		case h.skipped:
		case r.cfg.For == 0:
			r.enter(now, name, h)
		default:
			h.next = now.Add(r.cfg.For)
		}
		return
	}
	h.version = version
	if op == "listed" && !h.reported && !h.skipped {
		h.since, h.next, h.late = now, now.Add(r.cfg.For), false
	}
}

// restart restarts at a time of the wall clock, which may have gone back.
func (r *reference) restart(now time.Time) {
	for _, h := range r.objects {
		if h.since.After(now) {
			h.since = now
		}
		switch {
		case h.next.IsZero():
			continue
		case !h.reported:
			h.next = h.since.Add(r.cfg.For)
		case h.next.After(now.Add(r.cfg.Every)):
			h.next = now.Add(r.cfg.Every)
		}
		h.late = !h.next.After(now)
	}
}

// TestConditionsModel: in any sequence, with restarts and jumps of clocks, the reports are exactly
// those of a simpler machine.
func TestConditionsModel(t *testing.T) {
	// Guarantee: conditions-alternate, entered, since, clock-jumps
	rapid.Check(t, func(rt *rapid.T) {
		cfg := rules.ConditionConfig{
			For:      time.Duration(rapid.SampledFrom([]int{0, 60, 90}).Draw(rt, "for")) * time.Second,
			Every:    time.Duration(rapid.SampledFrom([]int{0, 45, 3600}).Draw(rt, "every")) * time.Second,
			Existing: rapid.Bool().Draw(rt, "existing"),
		}
		b := newBench(t, cfg)
		cfg.Sources = []string{"pods"}
		r := &reference{cfg: cfg, objects: map[string]*held{}}
		uids := map[string]int{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now := b.clock.Now()
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "object")
			switch step := rapid.SampledFrom([]string{"see", "see", "see", "time", "restart"}).Draw(rt, "step"); step {
			case "see":
				op := rapid.SampledFrom([]string{"updated", "updated!", "listed", "listed!", "deleted", "sync", "sync!", "recreated"}).Draw(rt, "op")
				switch {
				case b.last[name] == nil:
					op = rapid.SampledFrom([]string{"added", "added!", "existing", "existing!"}).Draw(rt, "new")
					uids[name]++
				case op == "recreated":
					op = "added"
					uids[name]++
				}
				b.see(op, name, fmt.Sprint(uids[name]))
				version := b.number
				if strings.HasPrefix(op, "sync") {
					version, _ = strconv.Atoi(b.last[name].ResourceVersion())
				}
				r.see(now, op, name, fmt.Sprint(uids[name]), version)
			case "time":
				to := now.Add(time.Duration(rapid.IntRange(0, 120).Draw(rt, "seconds")) * time.Second)
				b.clock.Advance(to)
				r.until(now, to)
			case "restart":
				b.save()
				to := now.Add(time.Duration(rapid.SampledFrom([]int{-86400, -30, 0, 30, 120, 86400}).Draw(rt, "jump")) * time.Second)
				b.restart(cfg, to)
				r.restart(to)
			}
			slices.Sort(b.edges)
			slices.Sort(r.edges)
			if !slices.Equal(b.edges, r.edges) {
				rt.Fatalf("reported\n\t%s\nwant\n\t%s", strings.Join(b.edges, "\n\t"), strings.Join(r.edges, "\n\t"))
			}
		}
		b.save()
		if len(b.saved) != len(r.objects) {
			rt.Fatalf("%d are saved, and %d hold", len(b.saved), len(r.objects))
		}
	})
}
