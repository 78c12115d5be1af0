package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/test/must"
)

// oldCluster is the key of the cluster in the made-up format 5 of these tests.
const oldCluster = "clusterUID"

// oldState writes a file of the made-up format 5, and returns its path and content.
func oldState(t *testing.T) (path string, text []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	db, err := Open(Config{Path: path})
	must.Succeed(t, err)
	must.Succeed(t, db.Write(Cut{Cluster: "c", Memories: []MemoryCut{{Handler: "h", Put: []Value{{Key: "k", Value: []byte("v")}}}}}))
	must.Succeed(t, db.update(TransactionCut, func(tx *writing) error {
		meta := tx.top(metaBucket)
		if err := rename(tx, meta, clusterKey, oldCluster); err != nil {
			return err
		}
		return statefile.SetFormat(meta.Bucket, 5)
	}))
	must.Succeed(t, db.Close())
	text, err = os.ReadFile(path)
	must.Succeed(t, err)
	return path, text
}

// rename moves a record: it is encoded again, because its key is part of the checksum.
func rename(tx *writing, s shelf, from, to string) error {
	r := &reading{Tx: tx.Tx, codec: tx.codec}
	payload, err := r.record(s, from)
	if err == nil && payload == nil {
		err = fmt.Errorf("there is no record %s", from)
	}
	if err == nil {
		err = tx.put(s, []byte(to), payload)
	}
	if err == nil {
		err = tx.remove(s, []byte(from))
	}
	return err
}

// toFormat6 converts a file of the made-up format 5, and counts.
func toFormat6(n *int) []conversion {
	return []conversion{
		{to: 4, run: func(*writing) error { return errors.New("the file has this format already") }},
		{to: 6, run: func(tx *writing) error {
			*n++
			return rename(tx, tx.top(metaBucket), oldCluster, clusterKey)
		}},
	}
}

// TestConvert opens a file of an older format: the content is that of the new format, and a copy
// has the content of the old one.
func TestConvert(t *testing.T) {
	// Guarantee: upgrade
	path, before := oldState(t)
	kept := path + ".format-5"
	must.Succeed(t, os.WriteFile(kept+".new", []byte("the start was interrupted"), 0o600))
	n := 0
	for range 3 {
		db, err := Open(Config{Path: path, conversions: toFormat6(&n)})
		must.Succeed(t, err)
		values, err := db.LoadMemory("h")
		if err != nil || len(values) != 1 || db.Cluster() != "c" || db.Quarantined() != "" {
			t.Errorf("cluster %q, %d values, put aside %q, %v", db.Cluster(), len(values), db.Quarantined(), err)
		}
		must.Succeed(t, db.Close())
		if n != 1 {
			t.Fatalf("%d conversions", n)
		}
	}
	if text, err := os.ReadFile(kept); err != nil || !bytes.Equal(text, before) {
		t.Errorf("the copy is not the file before, %v", err)
	}
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy: %v, %v", info, err)
	}
	if names := folderOf(t, path); !slices.Equal(names, []string{"state.db", "state.db.format-5", "state.db.journal", "state.db.lock"}) {
		t.Errorf("the folder has %q", names)
	}
}

func folderOf(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	must.Succeed(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestConvertFails: a conversion that fails, or whose copy cannot be made, leaves the file as it
// was, also if the reason looks like damage.
func TestConvertFails(t *testing.T) {
	// Guarantee: upgrade
	n := 0
	fails := func(reason error) []conversion {
		return []conversion{{to: 6, run: func(tx *writing) error {
			must.Succeed(t, tx.put(tx.top(metaBucket), []byte("half"), []byte("done")))
			return reason
		}}}
	}
	for name, c := range map[string]struct {
		prepare     func(path string)
		conversions []conversion
		want        string
	}{
		"an error":      {conversions: fails(errors.New("no luck")), want: "conversion to format 6: no luck"},
		"damage":        {conversions: fails(statefile.Corruptf("a record is empty")), want: "a record is empty"},
		"a panic":       {conversions: []conversion{{to: 6, run: func(*writing) error { panic("a bug") }}}, want: "a bug"},
		"no copy":       {conversions: toFormat6(&n), want: "the copy that is made before", prepare: blockCopy(t, ".format-5")},
		"no place":      {conversions: toFormat6(&n), want: "an earlier copy", prepare: blockCopy(t, ".format-5.new")},
		"no such value": {conversions: slices.Repeat(toFormat6(&n)[1:], 2), want: "there is no record " + oldCluster},
	} {
		path, before := oldState(t)
		if c.prepare != nil {
			c.prepare(path)
		}
		_, err := Open(Config{Path: path, conversions: c.conversions})
		var failed *ConversionError
		if !errors.As(err, &failed) || failed.From != 5 || failed.To != Format || errors.Is(err, ErrCorrupt) ||
			!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "it is unchanged") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s: the file was changed, %v", name, err)
		}
	}
}

// blockCopy puts a folder with a file in the place of a copy.
func blockCopy(t *testing.T, mark string) func(path string) {
	t.Helper()
	return func(path string) { must.Succeed(t, os.MkdirAll(filepath.Join(path+mark, "x"), 0o700)) }
}

// TestConversions: the table of this version ascends, ends at its format at most, and keeps older
// versions from reading a converted file.
func TestConversions(t *testing.T) {
	last := 1
	for _, c := range conversions() {
		if c.to <= last || c.to > Format || c.run == nil {
			t.Errorf("the conversion to format %d follows the one to %d; this version has %d", c.to, last, Format)
		}
		last = c.to
	}
	if statefile.OldestReader < last {
		t.Errorf("versions of format %d may read a file that was converted to %d", statefile.OldestReader, last)
	}
}
