package recording_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var header = recording.Header{
	Cluster: "test", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Router: "dev",
	Sources: map[string]recording.Source{"pods": {Resource: "v1/pods", Namespaces: []string{"a"}}, "nodes": {Resource: "v1/nodes", Drop: []string{"status.images"}}},
}

func pod(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u"}}`, name) }

// lines has lines of each op.
var lines = []recording.Line{
	{Op: recording.Existing, Source: "pods", Kind: "Pod", Object: pod("a")},
	{At: 1500 * time.Microsecond, Op: recording.Synced, Source: "nodes", Kind: "Node"},
	{At: time.Second, Op: recording.Synced, Source: "pods"},
	{At: time.Minute + time.Microsecond, Op: recording.Added, Source: "pods", Object: pod("b\n€")},
	{At: time.Minute + time.Microsecond, Op: recording.Sync, Source: "pods", Round: time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC), Object: pod("b")},
	{At: time.Hour, Op: recording.Updated, Source: "pods", Object: pod("b")},
	{At: time.Hour, Op: recording.Deselected, Source: "pods", Stale: true, Object: pod("b")},
	{At: 400 * time.Hour, Op: recording.Deleted, Source: "pods", Stale: true, Object: pod("b")},
	{At: 400 * time.Hour, Op: recording.End},
}

// write makes a recording, flushed after each line.
func write(t testing.TB, compress bool, lines []recording.Line) (text []byte, flushed []int) {
	t.Helper()
	var out bytes.Buffer
	w, err := recording.NewWriter(&out, compress, header)
	must.Succeed(t, err)
	for _, l := range lines {
		must.Succeed(t, errors.Join(w.Write(l), w.Flush()))
		flushed = append(flushed, out.Len())
	}
	must.Succeed(t, w.Close())
	return out.Bytes(), flushed
}

// read reads all lines and the error after them.
func read(in io.Reader, limits recording.Limits) (h recording.Header, lines []recording.Line, err error) {
	r, err := recording.NewReader(in, limits)
	if err != nil {
		return h, nil, err
	}
	defer r.Close()
	for {
		l, err := r.Next()
		if err != nil {
			if _, again := r.Next(); again == nil || again.Error() != err.Error() {
				return h, lines, fmt.Errorf("%w, and then %w", err, again)
			}
			return r.Header(), lines, err
		}
		lines = append(lines, l)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, compress := range []bool{false, true} {
		text, _ := write(t, compress, lines)
		h, got, err := read(bytes.NewReader(text), recording.Limits{})
		h.Format, h.Version = "", 0
		if !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, lines) || !reflect.DeepEqual(h, header) {
			t.Errorf("compressed %v: %v\n%+v\nwant\n%+v\n%+v", compress, err, got, lines, h)
		}
		if bytes.HasPrefix(text, []byte("{")) == compress {
			t.Errorf("compressed %v: %.20q", compress, text)
		}
	}
}

func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := []recording.Op{recording.Existing, recording.Synced, recording.Added, recording.Updated, recording.Deleted, recording.Deselected, recording.Sync}
		var want []recording.Line
		for range rapid.IntRange(0, 20).Draw(rt, "lines") {
			l := recording.Line{
				At: time.Duration(rapid.Int64Range(0, 1e12).Draw(rt, "at")) * time.Microsecond, Op: rapid.SampledFrom(ops).Draw(rt, "op"),
				Source: rapid.SampledFrom([]string{"pods", "nodes"}).Draw(rt, "source"), Stale: rapid.Bool().Draw(rt, "stale"),
			}
			if l.Op == recording.Sync {
				l.Round = time.Unix(0, rapid.Int64Range(1, 1e18).Draw(rt, "round")).UTC()
			}
			if l.Op != recording.Synced {
				l.Object = pod(rapid.String().Draw(rt, "name"))
				if rawjson.Check(l.Object) != nil { // Go can write JSON that this package refuses
					l.Object = pod("x")
				}
			}
			want = append(want, l)
		}
		want = append(want, recording.Line{Op: recording.End})
		text, _ := write(t, rapid.Bool().Draw(rt, "compress"), want)
		if _, got, err := read(bytes.NewReader(text), recording.Limits{}); !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, want) {
			rt.Fatalf("%v\n%+v\nwant\n%+v", err, got, want)
		}
	})
}

// TestLineEnds shows that line breaks between the tokens of an object do not break its line.
func TestLineEnds(t *testing.T) {
	text, _ := write(t, false, []recording.Line{{Op: recording.Added, Source: "pods", Object: "{\r\n\"metadata\": {\n\"name\": \"a\"}}"}})
	_, got, err := read(bytes.NewReader(text), recording.Limits{})
	if !errors.Is(err, recording.ErrCutOff) || len(got) != 1 || strings.Contains(got[0].Object, "\n") || !strings.Contains(got[0].Object, `"name": "a"`) {
		t.Errorf("%v %+v", err, got)
	}
}

// TestCutOff cuts a recording at each byte. All lines flushed until then must be read in order, and
// the error must report the missing rest.
func TestCutOff(t *testing.T) {
	for _, compress := range []bool{false, true} {
		text, flushed := write(t, compress, lines)
		for n := range len(text) {
			_, got, err := read(bytes.NewReader(text[:n]), recording.Limits{})
			least := 0
			for least < len(flushed) && flushed[least] <= n {
				least++
			}
			if len(got) < least || !reflect.DeepEqual(got, lines[:len(got):len(got)]) && len(got) > 0 {
				t.Fatalf("compressed %v, %d bytes of %d: %d lines, %d were flushed; %v", compress, n, len(text), len(got), least, err)
			}
			if len(got) == len(lines) {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("compressed %v, %d bytes: %v", compress, n, err)
				}
			} else if !errors.Is(err, recording.ErrCutOff) && !errors.Is(err, recording.ErrFormat) || errors.Is(err, recording.ErrFormat) && n >= 4 {
				t.Fatalf("compressed %v, %d bytes: %v", compress, n, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	whole, _ := write(t, false, lines)
	first := string(whole[:bytes.IndexByte(whole, '\n')+1])
	packed, _ := write(t, true, lines)
	packed[len(packed)/2] ^= 0x55
	for name, test := range map[string]struct {
		text, want string
		is         error
	}{
		"nothing":         {"", "not a recording: it is empty", recording.ErrFormat},
		"another file":    {"a: b\n", "not a recording: its first line does not say that it is a deltarouter-recording", recording.ErrFormat},
		"another JSON":    {`{"format":"x"}` + "\n", "does not say", recording.ErrFormat},
		"another version": {strings.Replace(first, `"version":1`, `"version":2`, 1), "which this program reads: it is of version 2", recording.ErrFormat},
		"no JSON":         {first + "{\"at\":0,\"op\":\"end\"\n", "line 2: ", nil},
		"no op":           {first + `{"at":0,"source":"pods"}` + "\n", "line 2: op is missing or unknown", nil},
		"another op":      {first + `{"at":0,"source":"pods","op":"burnt"}` + "\n", "op is missing or unknown", nil},
		"no source":       {first + `{"at":0,"op":"synced"}` + "\n", "line 2: source is missing", nil},
		"another source":  {first + `{"at":0,"op":"synced","source":"jobs"}` + "\n", "line 2: the header does not contain its source", nil},
		"no time":         {first + `{"op":"end"}` + "\n", "line 2: at is missing", nil},
		"no such time":    {first + `{"at":1e300,"op":"end"}` + "\n", "line 2: at is missing", nil},
		"before":          {first + `{"at":-1,"op":"end"}` + "\n", "line 2: at is missing", nil},
		"no object":       {first + `{"at":0,"op":"added","source":"pods","object":"x"}` + "\n", "line 2: object is missing, or is no object", nil},
		"no round":        {first + `{"at":0,"op":"sync","source":"pods","object":{}}` + "\n", "line 2: round is missing", nil},
		"a long line":     {first + strings.Repeat("x", 2000) + "\n", "line 2: too large", recording.ErrTooLarge},
		"much":            {first + strings.Repeat(`{"at":0,"op":"synced","source":"pods"}`+"\n", 300), "too large", recording.ErrTooLarge},
		"damaged":         {string(packed), "", nil},
	} {
		_, _, err := read(strings.NewReader(test.text), recording.Limits{Line: 1000, Total: 10_000})
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBomb shows that a small recording that unpacks to a large one exceeds the bound, without
// taking memory for it.
func TestBomb(t *testing.T) {
	var out bytes.Buffer
	zip, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	must.Succeed(t, err)
	text, _ := write(t, false, lines[:1])
	_, err = zip.Write(text)
	zeros := make([]byte, 1<<20)
	for range 200 {
		_, e := zip.Write(zeros)
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, zip.Close()); err != nil {
		t.Fatal(err)
	}
	_, got, err := read(&out, recording.Limits{})
	if !errors.Is(err, recording.ErrTooLarge) || len(got) != 1 {
		t.Errorf("%d lines, %v", len(got), err)
	}
}

type broken struct{ after int }

var errFull = errors.New("no space left")

func (b *broken) Write(p []byte) (int, error) {
	if b.after -= len(p); b.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestWriteFails shows that the next flush reports a full disk, and so do all further calls.
func TestWriteFails(t *testing.T) {
	for _, compress := range []bool{false, true} {
		w, err := recording.NewWriter(&broken{10}, compress, header)
		must.Succeed(t, err)
		if err := w.Flush(); !errors.Is(err, errFull) {
			t.Errorf("flush: %v", err)
		}
		if err := w.Write(lines[0]); !errors.Is(err, errFull) {
			t.Errorf("write: %v", err)
		}
		if err := w.Close(); !errors.Is(err, errFull) {
			t.Errorf("close: %v", err)
		}
	}
}

// FuzzReader shows that reading ends for any input, and that all returned lines were checked.
func FuzzReader(f *testing.F) {
	for _, compress := range []bool{false, true} {
		text, _ := write(f, compress, lines)
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, lines, err := read(bytes.NewReader(text), recording.Limits{Line: 1 << 16, Total: 1 << 20})
		if err == nil {
			t.Fatal("no end")
		}
		for _, l := range lines {
			if l.Object != "" && (rawjson.Check(l.Object) != nil || strings.Contains(l.Object, "\n")) {
				t.Errorf("%q", l.Object)
			}
			if l.At < 0 {
				t.Errorf("at %v", l.At)
			}
		}
	})
}
