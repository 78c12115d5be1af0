package checkpoint_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// heavy returns a dead letter with an object of about 100 KB that cannot be compressed.
func heavy(t testing.TB, random *rand.ChaCha8, route string) checkpoint.Letter {
	t.Helper()
	body := make([]byte, 75<<10)
	_, err := random.Read(body)
	must.Succeed(t, err)
	o := object(t, resource("", "pods"), "n", "u", "1", base64.StdEncoding.EncodeToString(body))
	return checkpoint.Letter{Time: time.Unix(1, 0), Route: route, Error: "no", Delta: &event.Delta{Source: "s", Op: event.Added, New: o}}
}

// TestLettersShare: many routes of a team that fail at everything evict dead letters of this team
// only, and the file takes new objects, also after a restart.
func TestLettersShare(t *testing.T) {
	// Guarantee: dead-letters-share
	path := statePath(t)
	reopened := func() *checkpoint.DB {
		db, err := checkpoint.Open(checkpoint.Config{Path: path, MaxSize: 32 << 20})
		must.Succeed(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	lost := map[string]int{}
	share := checkpoint.LettersConfig{
		Share: checkpoint.LettersShare{Bytes: 8 << 20, Owned: 2 << 20},
		Lost:  func(route, reason string, n int) { lost[checkpoint.Owner(route)+" "+reason] += n },
	}
	db := reopened()
	l := openLetters(t, db, share)
	random := rand.NewChaCha8([32]byte{})
	add(t, l, heavy(t, random, "other/r"), heavy(t, random, "own"))
	added, last := 0, ""
	for round := range 12 {
		var letters []checkpoint.Letter
		for i := range 40 {
			last = fmt.Sprintf("team/r%d", i)
			letters = append(letters, heavy(t, random, last))
		}
		add(t, l, letters...)
		added += len(letters)
		if round == 5 {
			must.Succeed(t, db.Close())
			db = reopened()
			l = openLetters(t, db, share)
		}
		if kept := len(l.IDs("", 0, 0)) - 2; kept < 20 || kept > 30 || kept+lost["team share"] != added || len(lost) != 1 {
			t.Fatalf("%d of %d dead letters of the team are kept, lost are %v", kept, added, lost)
		}
	}
	if ids := l.IDs(last, 0, 0); len(ids) != 1 || len(l.IDs("other/r", 0, 0)) != 1 || len(l.IDs("own", 0, 0)) != 1 {
		t.Error("the newest, or those of others, are lost")
	}
	if size := db.Size(); size > 16<<20 {
		t.Errorf("the file has %d bytes", size)
	}
	o := object(t, resource("", "pods"), "new", "u", "2", "new")
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "2", Put: []*event.Object{o}}}})
}

// TestLettersShareOfAll: beyond the share of all, the owner with the most loses its oldest ones.
func TestLettersShareOfAll(t *testing.T) {
	for _, c := range []struct {
		name    string
		share   checkpoint.LettersShare
		routes  string
		want    []uint64
		expired []uint64 // with half of the bytes, after a restart
	}{
		{name: "no bounds", routes: "a/1 a/2 b/1", want: []uint64{1, 2, 3}, expired: []uint64{1, 2, 3}},
		{name: "the newest exceeds", share: checkpoint.LettersShare{Owned: 1}, routes: "a/1 a/1 a/2 b/1 own own", want: []uint64{3, 4, 5, 6}, expired: []uint64{3, 4, 5, 6}},
		{name: "the largest owner", share: checkpoint.LettersShare{Bytes: 450 << 10}, routes: "a/1 b/1 b/2 b/1 b/2", want: []uint64{1, 3, 4, 5}, expired: []uint64{1, 5}},
		{name: "without an owner", share: checkpoint.LettersShare{Bytes: 450 << 10}, routes: "own x own own a/1 own", want: []uint64{3, 4, 5, 6}, expired: []uint64{5, 6}},
		{name: "one is too large", share: checkpoint.LettersShare{Bytes: 1}, routes: "a/1", expired: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			db := open(t, path)
			l := openLetters(t, db, checkpoint.LettersConfig{Share: c.share})
			random := rand.NewChaCha8([32]byte{})
			var letters []checkpoint.Letter
			for _, route := range strings.Fields(c.routes) {
				letters = append(letters, heavy(t, random, route))
			}
			add(t, l, letters...)
			if ids := l.IDs("", 0, 0); !slices.Equal(ids, c.want) || len(load(t, l, 1, 2, 3, 4, 5, 6)) != len(ids) {
				t.Errorf("%v stay, want %v", ids, c.want)
			}
			db = reopen(t, db, path)
			c.share.Bytes /= 2
			l = openLetters(t, db, checkpoint.LettersConfig{Share: c.share})
			must.Succeed(t, l.Expire(t.Context(), time.Unix(1, 0)))
			if ids := l.IDs("", 0, 0); !slices.Equal(ids, c.expired) {
				t.Errorf("%v stay after a restart, want %v", ids, c.expired)
			}
		})
	}
}
