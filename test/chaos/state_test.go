package chaos

import (
	encoding "encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// stateOf returns the path of the state file of an installed configuration.
func stateOf(file string) string { return filepath.Join(filepath.Dir(file), "state", "state.db") }

// TestTwoOnOneFolder shows that a second router refuses to start and names the first, which is not
// affected.
func TestTwoOnOneFolder(t *testing.T) {
	// Guarantee: damaged-state
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	for range 2 {
		code, log := routertest.RunToEnd(t, file)
		if code != 1 || !strings.Contains(log, fmt.Sprintf("held by process %d ", r.Process().Pid)) {
			t.Errorf("exit code %d, want 1; process %d is not named: %s", code, r.Process().Pid, log)
		}
	}
	maps.Make(routertest.ConfigMap("a", "1"))
	r.Expect(t, "all added "+ns+"/a")
	r.Saved(t)
	r.Kill(t)
	maps.Make(routertest.ConfigMap("b", "1"))
	r = routertest.StartFile(t, file) // the lock ended with its process
	if events := r.Expect(t, "all added "+ns+"/b"); len(events) != 1 {
		t.Errorf("got %q", routertest.Summary(events))
	}
}

// TestDamagedState damages the state file between two runs. The router must start all the same:
// either with the right state, or it moves the file aside, says so, and begins with an empty one.
func TestDamagedState(t *testing.T) {
	// Guarantee: damaged-state
	t.Parallel()
	damages := []struct {
		name       string
		harm       func(data []byte) []byte
		quarantine bool // it must move the file aside
	}{
		{"empty", func([]byte) []byte { return nil }, true},
		{"one byte", func(data []byte) []byte { return data[:1] }, true},
		{"half", func(data []byte) []byte { return data[:len(data)/2] }, false},
		{"garbage", func(data []byte) []byte { return []byte(strings.Repeat("garbage ", len(data)/8)) }, true},
		{"garbage in front", func(data []byte) []byte { copy(data, strings.Repeat("garbage ", 2048)); return data }, true},
		{"zeros at the end of what is used", func(data []byte) []byte { clear(data[len(data)/4:]); return data }, false},
	}
	for i := range effort.Rounds(2, 3, 60) {
		damages = append(damages, struct {
			name       string
			harm       func(data []byte) []byte
			quarantine bool
		}{fmt.Sprintf("bits %d", i), flip, false})
	}
	s := sandboxtest.Start(t)
	for _, damage := range damages {
		t.Run(damage.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			ns := s.Namespace(t)
			file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
			fill(t, s, ns, file)
			data, err := os.ReadFile(stateOf(file))
			must.Succeed(t, err)
			must.Succeed(t, os.WriteFile(stateOf(file), damage.harm(data), 0o600))
			checkDamaged(t, s, ns, file, damage.quarantine)
		})
	}
}

// fill makes a state file of objects with a history.
func fill(t *testing.T, s *sandboxtest.Sandbox, ns, file string) {
	t.Helper()
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	createMany(t, s, ns, "m", 40)
	r := routertest.StartFile(t, file)
	r.Wait(t, "all objects", func(events []routertest.Event) bool { return len(events) == 40 })
	r.Saved(t)
	for i := range 20 {
		maps.Change(fmt.Sprintf("m-%d", i), `{"data":{"value":"2"}}`)
	}
	r.Wait(t, "all changes", func(events []routertest.Event) bool { return len(events) == 60 })
	if code := r.Stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
}

// flip changes some of the bytes that are not zero.
func flip(data []byte) []byte {
	for range 10 {
		for {
			if i := rand.IntN(len(data)); data[i] != 0 { //nolint:gosec // no secret
				data[i] ^= byte(1 << rand.IntN(8)) //nolint:gosec // no secret
				break
			}
		}
	}
	return data
}

func checkDamaged(t *testing.T, s *sandboxtest.Sandbox, ns, file string, mustQuarantine bool) {
	t.Helper()
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Remove("m-0")
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps.Make(routertest.ConfigMap("new", "1"))
	maps.Remove("m-1")
	r.Expect(t, "all added "+ns+"/new", "all deleted "+ns+"/m-1")
	aside, _ := filepath.Glob(stateOf(file) + ".corrupt-*")
	switch {
	case len(aside) > 1 || mustQuarantine && len(aside) == 0:
		t.Errorf("damaged files: %q", aside)
	case len(aside) == 1:
		if !strings.Contains(r.Log(), "the state file is damaged") || !strings.Contains(r.Log(), filepath.Base(aside[0])) {
			t.Error("the log does not say that the file was moved away, and where")
		}
		r.Wait(t, "everything anew", func(events []routertest.Event) bool { return len(events) == 39+2 })
	default:
		routertest.Exactly(t, routertest.Summary(r.Expect(t, "all deleted "+ns+"/m-0")), []string{
			"all deleted " + ns + "/m-0", "all added " + ns + "/new", "all deleted " + ns + "/m-1",
		})
	}
	r.Saved(t)
	r.Kill(t)
	// The new state works.
	maps.Make(routertest.ConfigMap("last", "1"))
	r = routertest.StartFile(t, file)
	if events := r.Expect(t, "all added "+ns+"/last"); len(events) != 1 {
		t.Errorf("after it: got %q", routertest.Summary(events))
	}
	if now, _ := filepath.Glob(stateOf(file) + ".corrupt-*"); len(now) != len(aside) {
		t.Errorf("damaged files after another start: %q", now)
	}
}

// TestNewerState shows that a file of a newer version is refused and left unchanged.
func TestNewerState(t *testing.T) {
	// Guarantee: downgrade
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	fill(t, s, ns, file)
	setFormat(t, stateOf(file), checkpoint.Format+1)
	before, err := os.ReadFile(stateOf(file))
	must.Succeed(t, err)
	for range 2 {
		code, log := routertest.RunToEnd(t, file)
		if code != 1 || !strings.Contains(log, fmt.Sprint("format ", checkpoint.Format+1)) || !strings.Contains(log, "state.db") {
			t.Errorf("exit code %d, want 1; %s", code, log)
		}
	}
	if after, err := os.ReadFile(stateOf(file)); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed (%v)", err)
	}
	setFormat(t, stateOf(file), 1)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Remove("m-0")
	r := routertest.StartFile(t, file)
	if events := r.Expect(t, "all deleted "+ns+"/m-0"); len(events) != 1 {
		t.Errorf("got %q", routertest.Summary(events))
	}
}

// setFormat changes the format number in the state file.
func setFormat(t *testing.T, path string, format uint16) {
	t.Helper()
	value := encoding.BigEndian.AppendUint16(encoding.BigEndian.AppendUint16(nil, format), format)
	value = encoding.BigEndian.AppendUint32(value, crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)))
	db, err := bbolt.Open(path, 0o600, nil)
	must.Succeed(t, err)
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), value) })
	must.Succeed(t, err)
	must.Succeed(t, db.Close())
}
