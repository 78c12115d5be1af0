package segment

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestLost counts the records of frames that could not be written.
func TestLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	w, err := Create(path)
	must.Succeed(t, err)
	add := func(n int) {
		for range n {
			must.Succeed(t, w.Add(time.Unix(1e9, 0), []byte("x"), 1))
		}
	}
	add(2)
	must.Succeed(t, w.Flush())
	must.Succeed(t, w.file.Close()) // later writes fail
	add(3)
	if err := w.Flush(); err == nil || w.Lost() != 3 || len(w.Frames()) != 1 {
		t.Errorf("%v, %d lost, %d frames", err, w.Lost(), len(w.Frames()))
	}
	add(1)
	if err := w.Flush(); err == nil || w.Lost() != 4 {
		t.Errorf("%v, %d lost", err, w.Lost())
	}
	_ = w.Discard()
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there")
	}
}
