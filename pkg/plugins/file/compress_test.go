package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/file"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// asideName is a possible name of a rotated file.
const asideName = "events-20260102T030405.000000000Z.jsonl"

// soon waits until a condition holds.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// names returns the names of the files in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// expand returns the content of a compressed file, which must be complete.
func expand(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	defer f.Close()
	var r io.Reader = f
	switch filepath.Ext(path) {
	case ".gz":
		r, err = gzip.NewReader(f)
	case ".zst":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(f); err == nil {
			defer d.Close()
			r = d
		}
	}
	must.Succeed(t, err)
	content, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("%s: %v", filepath.Base(path), err)
	}
	return content
}

// everything returns the ids of the events in all files of a log, the oldest first.
func everything(t *testing.T, dir string) (all []int) {
	t.Helper()
	list := names(t, dir)
	slices.SortFunc(list, func(a, b string) int { // the current file is the last
		return strings.Compare(strings.Replace(a, "events.jsonl", "events-9", 1), strings.Replace(b, "events.jsonl", "events-9", 1))
	})
	plain := filepath.Join(t.TempDir(), "plain")
	for _, name := range list {
		must.Succeed(t, os.WriteFile(plain, expand(t, filepath.Join(dir, name)), 0o600))
		all = append(all, ids(t, plain)...)
	}
	return all
}

// compressed reports whether all rotated files of a folder are compressed.
func compressed(t *testing.T, dir, end string) bool {
	t.Helper()
	return !slices.ContainsFunc(names(t, dir), func(name string) bool { return name != "events.jsonl" && !strings.HasSuffix(name, end) })
}

// TestCompressed: rotated files are compressed completely, and the oldest are removed first.
func TestCompressed(t *testing.T) {
	for kind, end := range map[string]string{"gzip": ".gz", "zstd": ".zst"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "events.jsonl")
			s := open(t, fmt.Sprintf("{path: %q, maxSize: 4Ki, maxFiles: 1000, compress: %s, fsync: true}", path, kind))
			const n = 200
			for i := range n {
				write(t, s, numbered(i, 1))
			}
			soon(t, "all to be compressed", func() bool { return compressed(t, dir, end) })
			equal(t, "all files", everything(t, dir), count(0, n))
			before := len(names(t, dir))
			if before < 10 {
				t.Errorf("there are %d files", before)
			}
			for _, name := range names(t, dir) {
				info, err := os.Stat(filepath.Join(dir, name))
				must.Succeed(t, err)
				if own, err := os.Stat(path); err != nil || info.Mode() != own.Mode() {
					t.Errorf("%s has the mode %v (%v)", name, info.Mode(), err)
				}
			}
			must.Report(t, s.Close(t.Context()))
			few := open(t, fmt.Sprintf("{path: %q, maxSize: 4Ki, maxFiles: 3, compress: %s}", path, kind))
			for i := range 50 {
				write(t, few, numbered(n+i, 1))
			}
			soon(t, "all to be compressed", func() bool { return compressed(t, dir, end) && len(names(t, dir)) == 4 })
			all := everything(t, dir)
			equal(t, "the files that are kept", all, count(n+50-len(all), len(all)))
		})
	}
}

// TestInterruptedCompression: no line is lost or duplicated, and no temporary file stays, in any
// state that a crash or another program may leave.
func TestInterruptedCompression(t *testing.T) {
	// Guarantee: rotation-crash
	lines := func() (b []byte) {
		for _, e := range numbered(0, 100) {
			b = append(e.AppendJSON(b), '\n')
		}
		return b
	}()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(lines)
	_ = w.Close()
	whole := zipped.Bytes()
	empty := whole[:0]
	for name, c := range map[string]struct {
		left map[string][]byte
		want string // the file names afterwards, without the current file
	}{
		"before":                  {map[string][]byte{"": lines}, ".gz"},
		"at the beginning":        {map[string][]byte{"": lines, ".gz.123.tmp": empty}, ".gz"},
		"in the middle":           {map[string][]byte{"": lines, ".gz.123.tmp": whole[:len(whole)/2], ".zst.4.tmp": lines}, ".gz"},
		"before it has its name":  {map[string][]byte{"": lines, ".gz.123.tmp": whole}, ".gz"},
		"before the removal":      {map[string][]byte{"": lines, ".gz": whole}, ".gz"},
		"somebody is at it":       {map[string][]byte{"": lines, ".gz": whole[:len(whole)/2]}, ".gz"},
		"somebody has begun":      {map[string][]byte{"": lines, ".gz": empty}, ".gz"},
		"done":                    {map[string][]byte{".gz": whole}, ".gz"},
		"the oldest had to go":    {map[string][]byte{".gz": whole, ".gz.9.tmp": whole[:10]}, ".gz"},
		"the other kind was done": {map[string][]byte{"": lines, ".gz": whole}, ".gz"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for end, content := range c.left {
				must.Succeed(t, os.WriteFile(filepath.Join(dir, asideName+end), content, 0o600))
			}
			others := []string{"events-2026.jsonl.gz.1.tmp", asideName + ".bak", asideName + ".tmp", "other-20260102T030405.000000000Z.jsonl"}
			for _, name := range others {
				must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
			}
			kind := "gzip"
			if strings.HasPrefix(name, "the other kind") {
				kind = "zstd"
			}
			write(t, open(t, fmt.Sprintf("{path: %q, compress: %s}", filepath.Join(dir, "events.jsonl"), kind)), numbered(100, 1))
			want := append([]string{"events.jsonl", asideName + c.want}, others...)
			slices.Sort(want)
			soon(t, "the folder to be tidy", func() bool { return slices.Equal(names(t, dir), want) })
			for _, name := range others {
				if string(expand(t, filepath.Join(dir, name))) != "mine" {
					t.Errorf("%s was written to", name)
				}
				_ = os.Remove(filepath.Join(dir, name))
			}
			equal(t, "the files", everything(t, dir), count(0, 101))
		})
	}
}

// TestCloseInterrupts: Close does not wait for the compression and leaves no temporary file. The
// next start continues.
func TestCloseInterrupts(t *testing.T) {
	dir := t.TempDir()
	var lines []byte
	for _, e := range numbered(0, 100) {
		lines = append(e.AppendJSON(lines), '\n')
	}
	large := bytes.Repeat(lines, 200)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, asideName), large, 0o600))
	config := fmt.Sprintf("{path: %q, compress: gzip}", filepath.Join(dir, "events.jsonl"))
	s := open(t, config)
	write(t, s, numbered(0, 1))
	soon(t, "it to begin", func() bool { return len(names(t, dir)) > 2 || compressed(t, dir, ".gz") })
	must.Report(t, s.Close(t.Context()))
	for _, name := range names(t, dir) {
		if strings.HasSuffix(name, ".tmp") {
			t.Errorf("%s is left", name)
		}
	}
	write(t, open(t, config), numbered(1, 1))
	soon(t, "it to be compressed", func() bool { return compressed(t, dir, ".gz") })
	if !bytes.Equal(expand(t, filepath.Join(dir, asideName+".gz")), large) {
		t.Error("it has something else in it")
	}
}

// TestCompressionFails: a file whose compression fails stays unchanged, the failure is logged, and
// no write waits.
func TestCompressionFails(t *testing.T) {
	dir := t.TempDir()
	// a folder that cannot be replaced by a file
	for _, name := range []string{asideName + ".gz", asideName + ".gz/x"} {
		must.Succeed(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	line := append(numbered(0, 1)[0].AppendJSON(nil), '\n')
	must.Succeed(t, os.WriteFile(filepath.Join(dir, asideName), line, 0o600))
	said := make(chan string, 100)
	f := file.Kind()
	s, err := f.Open(t.Context(), plugintest.Node(t, fmt.Sprintf("{path: %q, compress: gzip}", filepath.Join(dir, "events.jsonl"))),
		plugins.SinkEnv{Env: plugins.Env{Name: "log", Log: slog.New(slog.NewTextHandler(lineWriter(said), nil)), Metrics: metrics.New()}})
	must.Succeed(t, err)
	write(t, s, numbered(1, 1))
	if got := <-said; !strings.Contains(got, "level=WARN") || !strings.Contains(got, "could not be compressed") || !strings.Contains(got, asideName) {
		t.Errorf("the log says %q", got)
	}
	write(t, s, numbered(2, 1))
	must.Report(t, s.Close(context.WithoutCancel(t.Context())))
	if got := names(t, dir); !slices.Equal(got, []string{asideName, asideName + ".gz", "events.jsonl"}) {
		t.Errorf("there are %v", got)
	}
	equal(t, "the rotated file", ids(t, filepath.Join(dir, asideName)), count(0, 1))
	equal(t, "the file", ids(t, filepath.Join(dir, "events.jsonl")), count(1, 2))
}

// lineWriter is an io.Writer that sends each write to a channel.
type lineWriter chan<- string

func (w lineWriter) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }
