package kept_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// of returns the set of paths with dots.
func of(paths ...string) kept.Set {
	var all [][]string
	for _, path := range paths {
		all = append(all, strings.Split(path, "."))
	}
	return kept.Of(all...)
}

// TestSets compares pairs of sets.
func TestSets(t *testing.T) {
	whole, none := kept.Whole(), kept.Set{}
	for _, tt := range []struct {
		a, b         kept.Set
		aHasB, bHasA bool
		union        string
	}{
		{none, none, true, true, "[]"},
		{whole, none, true, false, "*"},
		{whole, of("a"), true, false, "*"},
		{whole, whole, true, true, "*"},
		{of("a.b"), of("a"), false, true, "[a]"},
		{of("a.b"), of("a.bc"), false, false, "[a.b a.bc]"},
		{of("a.b", "c"), of("c", "a.b"), true, true, "[a.b c]"},
		{of("a.b.c", "d"), of("d.e"), true, false, "[a.b.c d]"},
		{of("b", "a", "a.x"), of("c.d"), false, false, "[a b c.d]"},
		{kept.Of(nil), none, true, false, "*"},
	} {
		union := tt.a.Or(tt.b)
		text := "*"
		if !union.IsWhole() {
			text = fmt.Sprint(union.Paths())
		}
		if tt.a.Covers(tt.b) != tt.aHasB || tt.b.Covers(tt.a) != tt.bHasA || text != tt.union || !union.Equal(tt.b.Or(tt.a)) {
			t.Errorf("%s and %s: %v %v %s", tt.a.Text(), tt.b.Text(), tt.a.Covers(tt.b), tt.b.Covers(tt.a), text)
		}
		if !union.Covers(tt.a) || !union.Covers(tt.b) || tt.a.Equal(tt.b) != (tt.aHasB && tt.bHasA) {
			t.Errorf("%s and %s: the union is %s", tt.a.Text(), tt.b.Text(), union.Text())
		}
		if both := tt.a.And(tt.b); !tt.a.Covers(both) || !tt.b.Covers(both) || !both.Equal(tt.b.And(tt.a)) || tt.aHasB && !both.Equal(tt.b) {
			t.Errorf("%s and %s: both have %s", tt.a.Text(), tt.b.Text(), both.Text())
		}
		if again, err := kept.Parse(union.Text()); err != nil || again.Text() != union.Text() {
			t.Errorf("%s is read as %s, %v", union.Text(), again.Text(), err)
		}
	}
}

func TestParseMistake(t *testing.T) {
	if _, err := kept.Parse(`{"a":1}`); err == nil || !strings.HasPrefix(err.Error(), "kept fields: ") {
		t.Errorf("got %v", err)
	}
}

// TestManyFields: a set with too many fields for a selection is the whole object.
func TestManyFields(t *testing.T) {
	var paths [][]string
	for i := range 257 {
		paths = append(paths, []string{"data", fmt.Sprint(i)})
	}
	if !kept.Of(paths...).IsWhole() || kept.Of(paths[:256]...).IsWhole() {
		t.Error("the bound is another one")
	}
}

func TestInMetadata(t *testing.T) {
	for _, tt := range []struct {
		set  kept.Set
		want bool
	}{
		{kept.Identity(), true},
		{kept.Identity().Or(of("metadata.labels")), true},
		{of("metadata"), true},
		{of("metadata.name", "spec.x"), false},
		{kept.Whole(), false},
	} {
		if got := tt.set.InMetadata(); got != tt.want {
			t.Errorf("%s: %v", tt.set.Text(), got)
		}
	}
}

func TestPaths(t *testing.T) {
	set := kept.Identity().Or(kept.Of([]string{"metadata", "labels", "app.kubernetes.io/name"}, []string{"status", "phase"}, []string{"a b"}))
	if got, want := set.Paths(), []string{`["a b"]`, `metadata.labels["app.kubernetes.io/name"]`, "status.phase"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSelection: the copy of an object has the fields of the set, and its identity.
func TestSelection(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"1"},"creationTimestamp":"x"},"spec":{"containers":[{"image":"i","env":[]},{}]},"status":{}}`
	const want = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","creationTimestamp":"x"},"spec":{"containers":[{"image":"i"},{}]}}`
	if kept.Whole().Selection() != nil {
		t.Error("the whole object has a selection")
	}
	set, err := kept.Parse(kept.Identity().Or(of("spec.containers.image")).Text())
	must.Succeed(t, err)
	if got := string(set.Selection().Append(nil, object)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestParts compares parts of sets: those that one lacks, and those that two have in common.
func TestParts(t *testing.T) {
	few := kept.Identity().Or(of("spec.a", "status.phase"))
	for _, tt := range []struct {
		other    kept.Set
		missing  string
		disjoint bool
	}{
		{of("spec.a.x"), "[]", false},
		{of("spec", "metadata.name"), "[spec]", false},
		{of("data", "status.phase"), "[data]", false},
		{of("data"), "[data]", true},
		{kept.Set{}, "[]", true},
		{kept.Whole(), "[]", false},
	} {
		if got := fmt.Sprint(few.Missing(tt.other)); got != tt.missing || few.Disjoint(tt.other) != tt.disjoint || tt.other.Disjoint(few) != tt.disjoint {
			t.Errorf("%s: missing are %s, disjoint: %v", tt.other.Text(), got, few.Disjoint(tt.other))
		}
	}
	if got := fmt.Sprint(slices.Collect(few.All())); got != "[[spec a] [status phase]]" {
		t.Errorf("all are %s", got)
	}
}

// TestKeys shows that a set can be written as paths, and that no path and all fields differ.
func TestKeys(t *testing.T) {
	for _, set := range []kept.Set{{}, kept.Whole(), kept.Identity(), kept.Of([]string{"status"}, []string{"spec", "nodeName"})} {
		keys, again := set.Keys(), kept.Whole()
		if keys != nil {
			again = kept.Of(keys...)
		}
		if !again.Equal(set) {
			t.Errorf("%v became %v", set, again)
		}
	}
}
