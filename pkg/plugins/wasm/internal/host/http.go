package host

import (
	"context"
	"errors"

	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/fetch"
)

// hostHTTP is http(request, size, buf, limit).
func hostHTTP(ctx context.Context, c *hostCall) int64 {
	size := c.u32(1)
	if size > fetch.MaxRequest {
		return abi.StatusQuota
	}
	text, ok := c.memory.Read(c.u32(0), size)
	if !ok {
		return abi.StatusInvalid
	}
	c.charge(httpFuel + parseFuel(int(size)))
	return int64(c.scope.reply(c, "http", text, c.u32(2), c.u32(3), func() ([]byte, int32) {
		answer, status := c.scope.ask(ctx, string(text))
		if status >= 0 {
			c.charge(sendFuel + parseFuel(len(answer)))
		}
		return answer, status
	}))
}

// ask sends the request that a guest wrote, when the rate allows it.
func (s *Scope) ask(ctx context.Context, text string) ([]byte, int32) {
	client := s.host.http
	r, host, status := client.Find(text)
	switch {
	case status < 0:
		return nil, status
	case ctx.Err() != nil, !s.host.clock.Now().Before(s.deadline):
		return nil, abi.StatusTooLate
	case !s.await(ctx, host):
		return nil, abi.StatusQuota
	}
	ctx, cancel := s.patience(ctx)
	defer cancel()
	return client.Do(ctx, host, r)
}

// ErrRate is the reason of a delta that is put off because a host's rate is used up.
var ErrRate = errors.New("the rate of requests is used up (allow.http.rate)")

// await waits until the host may be asked. The time does not count as the guest's: a call may wait
// for rates as long again as its deltas may take. If that is too short it returns false, and the
// deltas that the guest fails at are put off.
func (s *Scope) await(ctx context.Context, host *fetch.Target) bool {
	wait, ok := host.Reserve(min(s.timeout, s.mayWait))
	if !ok {
		s.overRate = max(s.overRate, wait)
		return false
	}
	if wait > 0 {
		host.Sleep(ctx, wait)
		s.mayWait -= wait
		s.deadline = s.deadline.Add(wait)
	}
	return true
}
