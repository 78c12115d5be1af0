package informer

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestBodyIdle: a read that takes too long ends the request. How long nobody reads does not count: who is slow downstream is not taken
// for an API server that is silent.
func TestBodyIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		in, out := io.Pipe()
		b := newBody(in, idle, func(err error) {
			if err != nil {
				_ = in.CloseWithError(err)
			}
		})
		send := func() { _, _ = out.Write([]byte("x")) }
		p := make([]byte, 1)
		for range 3 {
			go func() { time.Sleep(idle - time.Second); send() }()
			if _, err := b.Read(p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * idle)
		}
		began := time.Now()
		if _, err := b.Read(p); !errors.Is(err, errSlow) || time.Since(began) != idle {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		_ = b.Close()
	})
}
