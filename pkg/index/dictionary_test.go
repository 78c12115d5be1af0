package index_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
)

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
