package statefile

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/test/must"
)

// FuzzPages walks files with arbitrary damage. Panics are not caught: each is a failure.
func FuzzPages(f *testing.F) {
	c, err := NewCodec()
	must.Succeed(f, err)
	f.Cleanup(c.Close)
	golden, err := os.ReadFile("../testdata/format1.db")
	must.Succeed(f, err)
	f.Add(uint32(8192), []byte{1, 2, 3}, uint32(4096*5), []byte{0xff, 0xff})
	f.Add(uint32(4096*2+8), []byte{1, 0, 1, 0}, uint32(4096*3), []byte{})
	f.Add(uint32(4096*4), golden[4096*3:4096*3+200], uint32(4096*7+16), golden[4096*4:4096*4+64])
	f.Fuzz(func(t *testing.T, at uint32, bad []byte, at2 uint32, bad2 []byte) {
		file := bytes.Clone(golden)
		copy(file[min(int(at), len(file)):], bad)
		copy(file[min(int(at2), len(file)):], bad2)
		check := checker{codec: c, meta: c.Seed(0, MetaBucket)}
		walker := &pages{file: bytes.NewReader(file), size: int64(len(file)), codec: c, visit: check.visit}
		if _, err := walker.walk(); err != nil {
			return
		}
		if check.done() == nil && check.found.Count == 0 {
			t.Error("an empty file is in order")
		}
	})
}

// TestPagesOnAllCores: a walk on all cores finds the same as a walk in the order of the file. Of
// several damages it names the same one.
func TestPagesOnAllCores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	f, err := Open(Config{Path: path, Log: slog.New(slog.DiscardHandler), Opened: func(*bbolt.Tx, *Codec) error { return nil }})
	must.Succeed(t, err)
	must.Succeed(t, f.Update(func(tx *bbolt.Tx, codec *Codec) error {
		bucket, err := tx.CreateBucket([]byte("watches"))
		random := rand.NewChaCha8([32]byte{})
		for i := 0; i < 500 && err == nil; i++ {
			key, text := fmt.Appendf(nil, "%06d", i), make([]byte, 100+i*11)
			_, _ = random.Read(text)
			err = bucket.Put(key, codec.Append(nil, codec.Seed(0, "watches"), key, text))
		}
		return err
	}, func() {}))
	must.Succeed(t, f.Close())
	intact, err := os.ReadFile(path)
	must.Succeed(t, err)
	c, err := NewCodec()
	must.Succeed(t, err)
	defer c.Close()
	walk := func(file []byte, alone bool) (Seal, int64, error) {
		check := checker{codec: c, meta: c.Seed(0, MetaBucket)}
		walker := &pages{file: bytes.NewReader(file), size: int64(len(file)), codec: c, visit: check.visit, alone: alone}
		_, err := walker.walk()
		if err == nil && !alone && len(walker.crew) == 0 {
			t.Error("one core has walked alone")
		}
		return check.found, walker.usage.used.Load(), err
	}
	for n := range 40 {
		file := bytes.Clone(intact)
		random := rand.New(rand.NewPCG(uint64(n), 1)) //nolint:gosec // for tests
		for range n % 4 {
			file[4*4096+random.IntN(len(file)-4*4096)] ^= 0x55
		}
		found, used, err := walk(file, false)
		wantFound, wantUsed, want := walk(file, true)
		if fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("error is %v, want %v", err, want)
		}
		if err == nil && (found != wantFound || used != wantUsed || n == 0 && found.Count < 500) {
			t.Errorf("found %v on %d pages, want %v on %d", found, used, wantFound, wantUsed)
		}
	}
}
