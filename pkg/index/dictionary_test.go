package index_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
)

// TestRestLimit shows that the objects that are not compressed take no more than a part of the memory
// limit, from the first object on, and that objects that cannot be compressed do no harm.
func TestRestLimit(t *testing.T) {
	// Guarantee: memory-bounded
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(80 << 20))
	const most = 10 << 20
	f, all := restingFixture(t, 0)
	s := f.stores[0]
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 6000 {
		o := restingPod(t, i, i)
		if i%4 == 0 {
			noise := make([]byte, 1000)
			for j := range noise {
				noise[j] = byte('a' + random.IntN(26))
			}
			o = pod(t, fmt.Sprintf("ns%d", i%3), fmt.Sprintf("p%d", i), "", fmt.Sprintf(`,"data":%q`, noise))
		}
		s.Put(o)
		if i%100 == 0 {
			all = append(all, o)
		}
		if now := s.Plain(); now > most+256<<10 {
			t.Fatalf("%d: %d bytes are plain", i, now)
		}
	}
	for _, o := range all {
		got := s.Get(o.Key())
		if got == nil || string(got.JSON()) != string(o.JSON()) {
			t.Errorf("%v was lost", o)
		}
	}
	for _, o := range slices.Collect(s.All()) {
		s.Put(o)
		s.Delete(o.Key())
	}
	if s.Bytes() != 0 || s.Plain() != 0 {
		t.Errorf("%d bytes are left, %d plain", s.Bytes(), s.Plain())
	}
}

// FuzzCompress shows that an object is restored exactly, whatever texts the dictionary has.
func FuzzCompress(f *testing.F) {
	f.Add(`{"metadata":{"name":"a"}}`, ` {"metadata":{"name":"a\u0062","uid":"u"},"status":{"a":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}} `, uint32(50))
	f.Add(`{"metadata":{"name":"abcdefgh"},"spec":{"image":"registry/image:1"}}`, `{"metadata":{"name":"abcdefgh"},"spec":{"image":"registry/image:2"}}`, uint32(0))
	f.Fuzz(func(t *testing.T, sample, text string, status uint32) {
		a, err := event.ParseObject(restingPods, sample)
		if err != nil {
			return
		}
		o, err := event.ParseIndexed(restingPods, strings.Trim(text, " \t\r\n"), 0, min(status, uint32(len(strings.Trim(text, " \t\r\n")))))
		if err != nil {
			return
		}
		if restored := index.Restored(a, o); restored != nil && !sameText(restored, o) {
			t.Errorf("%q came back as %q", o.JSON(), restored.JSON())
		}
	})
}

// BenchmarkRest compresses an object of 4 KB, and reads it: as a copy, and by
// a look-up that is not the first one.
func BenchmarkRest(b *testing.B) {
	s := index.NewStore()
	for i := range 100 {
		s.Put(restingPod(b, i, i))
	}
	o := restingPod(b, 1, 1)
	compress := s.Compressor()
	read, again := compress(o)
	for name, work := range map[string]func(){
		"compress": func() { compress(o) },
		"copy":     func() { read() },
		"look-up":  func() { again() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				work()
			}
		})
	}
}
