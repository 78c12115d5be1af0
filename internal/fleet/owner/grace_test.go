package owner

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestGrace: the calls of an owner that loses its lease may end until 0.8 TTL after the last
// confirmed update, but not once another worker has the partition.
func TestGrace(t *testing.T) {
	// Guarantee: workers-owner
	t.Parallel()
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newShared()
			var sent atomic.Pointer[time.Time] // of the last call that is answered
			var dead atomic.Bool
			la := &link{shared: s}
			la.delay = func() (there, back time.Duration) {
				if now := time.Now(); !dead.Load() {
					sent.Store(&now)
				}
				return 0, 0
			}
			la.cut = func() (there, back bool) { return dead.Load(), dead.Load() }
			var lost, ended time.Time
			k := newKeeper("a", la, func(ctx context.Context, l *Lease) bool {
				<-l.Lost()
				if lost = time.Now(); l.Valid() {
					t.Error("a lease that is lost is valid")
				}
				<-ctx.Done()
				ended = time.Now()
				return false
			})
			go k.run(t.Context())
			time.Sleep(2*ttl + ttl/7)
			last := *sent.Load()
			if taken {
				other := &link{shared: s}
				_, revision, err := other.Get(t.Context(), part.String())
				must.Succeed(t, err)
				_, err = other.Put(t.Context(), part.String(), (&value{Worker: "b"}).encode(), revision)
				must.Succeed(t, err)
			} else {
				dead.Store(true)
			}
			time.Sleep(ttl)
			k.dismiss()
			<-k.ended
			switch after := ended.Sub(last); {
			case taken && (!ended.Equal(lost) || after > ttl*2/10):
				t.Errorf("taken: lost after %v, and ended after %v", lost.Sub(last), after)
			case !taken && (lost.Sub(last) < ttl*6/10 || after != ttl*8/10):
				t.Errorf("not renewed: lost after %v, and ended after %v", lost.Sub(last), after)
			}
		})
	}
}
