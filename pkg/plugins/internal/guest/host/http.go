package host

import (
	"context"
	"errors"

	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// hostHTTP implements http(request, size, buf, limit).
func hostHTTP(ctx context.Context, c *hostCall) int64 {
	size := c.u32(1)
	if size > maxRequest {
		return abi.StatusQuota
	}
	text, ok := c.memory.Read(c.u32(0), size)
	if !ok {
		return abi.StatusInvalid
	}
	c.charge(httpFuel + parseFuel(int(size)))
	return int64(c.scope.reply(c, "http", text, c.u32(2), c.u32(3), func() ([]byte, int32) {
		return c.scope.request(ctx, string(text))
	}))
}

// request sends the request of a guest, and charges for a sent one.
func (s *Scope) request(ctx context.Context, text string) ([]byte, int32) {
	return s.answers.obtain("http", text, func() ([]byte, int32) {
		answer, status := s.ask(ctx, text)
		if status >= 0 {
			s.tank.charge(sendFuel + parseFuel(len(answer)))
		}
		return answer, status
	})
}

// ask sends the request of a guest when the rate allows it.
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
	answer, status, unreached := client.Do(ctx, host, r)
	if unreached != nil {
		s.unreached = unreached
	}
	return answer, status
}

// ErrRate is the error of a delta that is postponed because the rate of a host is used up.
var ErrRate = errors.New("the rate of requests is used up (allow.http.rate)")

// await waits until the rate allows a request to the host. The wait does not count as time of the
// guest: a call may wait for rates in addition, as long as its deltas may take. If that is too
// short, await returns false, and the failed deltas of the call are postponed.
func (s *Scope) await(ctx context.Context, host *fetchTarget) bool {
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
