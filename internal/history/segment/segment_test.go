package segment_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/history/segment"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var began = time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)

// entry is a record with its time and keys.
type entry struct {
	after time.Duration
	keys  []uint32
	data  string
}

// write writes frames of records, and seals the segment if seal is set.
func write(t testing.TB, frames [][]entry, seal bool) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "1.history")
	w, err := segment.Create(path)
	must.Succeed(t, err)
	for _, frame := range frames {
		for _, e := range frame {
			must.Succeed(t, w.Add(began.Add(e.after), []byte(e.data), e.keys...))
		}
		must.Succeed(t, w.Flush())
	}
	if info, err := os.Stat(path); err != nil || info.Size() != w.Size() {
		t.Fatalf("the file has %v bytes, %v; want %d", info, err, w.Size())
	}
	must.Succeed(t, w.Seal())
	if !seal {
		must.Succeed(t, os.Remove(path+segment.IndexMark))
	}
	return path
}

// read reads the records of frames.
func read(r *segment.Reader, frames []segment.Frame) (all []entry, err error) {
	for _, f := range frames {
		first, last := int64(0), int64(0)
		err := r.Read(f, func(record segment.Record) bool {
			all = append(all, entry{record.At.Sub(began), slices.Clone(record.Keys), string(record.Data)})
			if first == 0 {
				first = record.At.UnixMicro()
			}
			last = record.At.UnixMicro()
			return true
		})
		if err != nil {
			return all, err
		}
		if first != f.Begin || last != f.End {
			return all, fmt.Errorf("the frame has records from %d to %d, and says %d to %d", first, last, f.Begin, f.End)
		}
	}
	return all, nil
}

// same reports whether two lists have the same records.
func same(a, b []entry) bool {
	return slices.EqualFunc(a, b, func(a, b entry) bool { return a.after == b.after && a.data == b.data && slices.Equal(a.keys, b.keys) })
}

// example has records of three keys in three frames.
func example() [][]entry {
	return [][]entry{
		{{0, []uint32{7}, "a"}, {time.Millisecond, []uint32{8, 9}, "b"}},
		{{time.Second, []uint32{8}, strings.Repeat("long", 50_000)}},
		{{2 * time.Second, []uint32{}, ""}, {2 * time.Second, []uint32{7}, "c"}},
	}
}

// TestReads reads a segment as a whole and by its keys, with an index and without.
func TestReads(t *testing.T) {
	want := slices.Concat(example()...)
	for _, sealed := range []bool{true, false} {
		t.Run(fmt.Sprint("sealed ", sealed), func(t *testing.T) {
			path := write(t, example(), sealed)
			if !sealed {
				lost, err := segment.Index(path)
				must.Succeed(t, err)
				if lost {
					t.Error("an intact segment has lost records")
				}
			}
			r, err := segment.Open(path)
			must.Succeed(t, err)
			defer func() { must.Succeed(t, r.Close()) }()
			frames, err := r.Frames()
			must.Succeed(t, err)
			got, err := read(r, frames)
			if err != nil || !same(got, want) {
				t.Errorf("read %d records, %v", len(got), err)
			}
			for key, n := range map[uint32]int{7: 2, 8: 2, 9: 1, 10: 0, 0: 0} {
				if frames, err := r.Of(key); err != nil || len(frames) != n {
					t.Errorf("key %d: %d frames, %v; want %d", key, len(frames), err, n)
				}
			}
		})
	}
}

// TestWriterFinds compares the frames that a writer knows with those of the file.
func TestWriterFinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.history")
	w, err := segment.Create(path)
	must.Succeed(t, err)
	for i := range 5000 { // several frames by their size alone
		must.Succeed(t, w.Add(began, []byte(strings.Repeat("x", 100)), uint32(i%2)))
	}
	must.Succeed(t, w.Flush())
	must.Succeed(t, w.Add(began.Add(-time.Hour), []byte("late"), 5)) // the clock went back
	must.Succeed(t, w.Flush())
	r, err := segment.Open(path)
	must.Succeed(t, err)
	defer func() { must.Succeed(t, r.Close()) }()
	frames, err := r.Frames()
	if err != nil || !reflect.DeepEqual(frames, w.Frames()) || len(frames) < 5 || len(w.Of(1)) != len(frames)-1 || len(w.Of(5)) != 1 {
		t.Errorf("%v, %v; the writer has %v", frames, err, w.Frames())
	}
	if got, err := read(r, frames); err != nil || len(got) != 5001 || got[5000].after < 0 {
		t.Errorf("%d records, %v", len(got), err)
	}
	must.Succeed(t, w.Seal())
	if _, err := segment.Create(path); err == nil {
		t.Error("a segment was overwritten")
	}
}

// TestTornTail cuts a segment at each length: the frames that are complete are read.
func TestTornTail(t *testing.T) {
	path := write(t, example(), false)
	whole, err := os.ReadFile(path)
	must.Succeed(t, err)
	r, err := segment.Open(path)
	must.Succeed(t, err)
	frames, err := r.Frames()
	must.Succeed(t, errors.Join(err, r.Close()))
	for n := range whole {
		must.Succeed(t, os.WriteFile(path, whole[:n], 0o600))
		complete := 0
		for i := range frames {
			if i+1 < len(frames) && frames[i+1].Offset <= int64(n) {
				complete++
			}
		}
		lost, err := segment.Index(path)
		if n < int(frames[0].Offset) {
			if !errors.Is(err, segment.ErrDamaged) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		r, openErr := segment.Open(path)
		must.Succeed(t, errors.Join(err, openErr))
		got, err := r.Frames()
		if err != nil || len(got) != complete || lost {
			t.Fatalf("%d bytes: %d frames, %v, lost %t; want %d", n, len(got), err, lost, complete)
		}
		_, err = read(r, got)
		must.Succeed(t, errors.Join(err, r.Close()))
	}
}

// TestDamage changes each byte of a segment: no record is read that was not written.
func TestDamage(t *testing.T) {
	frames := [][]entry{{{0, []uint32{7}, "first"}}, {{time.Second, []uint32{7, 8}, "second"}}, {{time.Minute, nil, "third"}}}
	written := slices.Concat(frames...)
	path := write(t, frames, false)
	whole, err := os.ReadFile(path)
	must.Succeed(t, err)
	for n := range whole {
		for _, bit := range []int{0, 4} {
			damaged := slices.Clone(whole)
			damaged[n] ^= 1 << bit
			must.Succeed(t, os.WriteFile(path, damaged, 0o600))
			_, err := segment.Index(path)
			r, openErr := segment.Open(path)
			if openErr != nil {
				if !errors.Is(openErr, segment.ErrDamaged) || !errors.Is(err, segment.ErrDamaged) {
					t.Fatal(openErr, err)
				}
				continue
			}
			must.Succeed(t, err)
			found, err := r.Frames()
			must.Succeed(t, err)
			got, err := read(r, found)
			must.Succeed(t, errors.Join(err, r.Close()))
			if len(got) >= len(written) || !same(got, written[:len(got)]) {
				t.Fatalf("byte %d: read %v", n, got)
			}
		}
	}
}

// TestDamagedIndex changes each byte of an index: the segment is then read without it.
func TestDamagedIndex(t *testing.T) {
	path := write(t, example(), true)
	whole, err := os.ReadFile(path + segment.IndexMark)
	must.Succeed(t, err)
	for n := range whole {
		damaged := slices.Clone(whole)
		damaged[n] ^= 0x10
		must.Succeed(t, os.WriteFile(path+segment.IndexMark, damaged, 0o600))
		r, err := segment.Open(path)
		must.Succeed(t, err)
		if frames, err := r.Of(9); r.Indexed() || err != nil || len(frames) != 3 {
			t.Errorf("byte %d: indexed %t, %d frames, %v", n, r.Indexed(), len(frames), err)
		}
		must.Succeed(t, r.Close())
	}
}

// TestProperty writes and reads random records.
func TestProperty(t *testing.T) {
	folder := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(folder, fmt.Sprint(n))
		w, err := segment.Create(path)
		must.Succeed(t, err)
		var want []entry
		after := time.Duration(0)
		frames := make(map[uint32]map[int]bool)
		flushed := 0
		for range rapid.IntRange(0, 30).Draw(rt, "records") {
			after += time.Duration(rapid.Int64Range(0, 1e9).Draw(rt, "after")) * time.Microsecond
			e := entry{after, rapid.SliceOfN(rapid.Uint32Range(0, 5), 0, 3).Draw(rt, "keys"), rapid.String().Draw(rt, "data")}
			must.Succeed(t, w.Add(began.Add(e.after), []byte(e.data), e.keys...))
			if want = append(want, e); frames[9] == nil {
				frames[9] = make(map[int]bool)
			}
			for _, key := range e.keys {
				if frames[key] == nil {
					frames[key] = make(map[int]bool)
				}
				frames[key][flushed] = true
			}
			if rapid.Bool().Draw(rt, "flush") {
				must.Succeed(t, w.Flush())
				flushed++
			}
		}
		must.Succeed(t, w.Seal())
		r, err := segment.Open(path)
		must.Succeed(t, err)
		all, err := r.Frames()
		must.Succeed(t, err)
		got, err := read(r, all)
		must.Succeed(t, err)
		if !same(got, want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
		for key, in := range frames {
			if of, err := r.Of(key); err != nil || len(of) != len(in) {
				rt.Fatalf("key %d: %d frames, %v; want %d", key, len(of), err, len(in))
			}
		}
		must.Succeed(t, r.Close())
	})
}

// FuzzSegment reads files with any content.
func FuzzSegment(f *testing.F) {
	whole, err := os.ReadFile(write(f, example(), true))
	must.Succeed(f, err)
	f.Add(whole, []byte{})
	f.Fuzz(func(t *testing.T, content, x []byte) {
		path := filepath.Join(t.TempDir(), "s")
		must.Succeed(t, errors.Join(os.WriteFile(path, content, 0o600), os.WriteFile(path+segment.IndexMark, x, 0o600)))
		r, err := segment.Open(path)
		if err != nil {
			return
		}
		defer r.Close()
		frames, _ := r.Frames()
		_, _ = read(r, frames)
		_, _ = r.Of(7)
	})
}
