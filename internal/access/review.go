package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// post sends a review and decodes the answer into it.
func (r *Reviewer) post(ctx context.Context, path string, review any) error {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return unanswered("it has too many requests in progress")
	}
	text, err := json.Marshal(review)
	if err != nil {
		return unanswered("the question cannot be encoded")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(r.cfg.URL, "/")+path, bytes.NewReader(text))
	if err != nil {
		return unanswered("its address is not valid")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := r.cfg.Client.Do(request)
	if err != nil {
		return unanswered("it does not answer")
	}
	defer response.Body.Close()
	name := path[strings.LastIndexByte(path, '/')+1:]
	switch response.StatusCode {
	case http.StatusCreated, http.StatusOK:
	case http.StatusForbidden, http.StatusUnauthorized:
		return unanswered("the router may not create " + name + ": give it the rights that router rbac prints")
	default:
		return unanswered("it answers " + response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(review); err != nil {
		return unanswered("its answer is no review")
	}
	return nil
}

// unanswered is the error of a question that has no answer.
func unanswered(reason string) error {
	return failf(http.StatusServiceUnavailable, "the API server does not say who may do this: %s", reason)
}

// memory keeps the answers to questions of one kind. Concurrent questions for the same answer are
// one.
type memory[T any] struct {
	yes, no       *cache.LRUExpireCache
	yesFor, noFor time.Duration
	flight        singleflight.Group
}

// clock implements the clock of the cache.
type clock func() time.Time

// Now implements cache.Clock.
func (c clock) Now() time.Time { return c() }

func newMemory[T any](now func() time.Time, size int, yesFor, noFor time.Duration) *memory[T] {
	// Refused tokens must not displace accepted ones.
	kept := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(size, clock(now)) }
	return &memory[T]{yes: kept(), no: kept(), yesFor: yesFor, noFor: noFor}
}

// answer is the result of a question.
type answer[T any] struct {
	value T
	ok    bool
}

// kept returns the answer of the cache.
func (m *memory[T]) kept(key string) (a answer[T], ok bool) {
	if value, ok := m.yes.Get(key); ok {
		return answer[T]{value.(T), true}, true
	}
	_, ok = m.no.Get(key)
	return a, ok
}

// get returns the answer of the cache, or that of ask. fresh: ask is called in any case. An error
// is not kept.
func (m *memory[T]) get(ctx context.Context, key string, fresh bool, ask func(context.Context) (T, bool, error)) (value T, ok bool, err error) {
	flight := key
	if fresh {
		flight = "fresh " + key
	} else if kept, ok := m.kept(key); ok {
		return kept.value, kept.ok, nil
	}
	// The question outlives a client that disconnects, because others may wait for it too.
	result := m.flight.DoChan(flight, func() (any, error) {
		// Another question may have ended after the look into the cache.
		if kept, ok := m.kept(key); ok && !fresh {
			return kept, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		value, ok, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		if ok {
			m.no.Remove(key)
			m.yes.Add(key, value, m.yesFor)
		} else {
			m.yes.Remove(key)
			m.no.Add(key, struct{}{}, m.noFor)
		}
		return answer[T]{value, ok}, nil
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return value, false, r.Err
		}
		a := r.Val.(answer[T])
		return a.value, a.ok, nil
	case <-ctx.Done():
		return value, false, unanswered("the client does not wait")
	}
}

// paces bounds the requests that clients may cause.
type paces struct {
	mu        sync.Mutex
	senders   *cache.LRUExpireCache // a *rate.Limiter by address
	users     *cache.LRUExpireCache // a *rate.Limiter by user
	allTokens *rate.Limiter
	// accepted has the hashes of tokens that were accepted a while ago, and acceptedTokens bounds
	// the requests for them: unknown tokens must not lock out the users of these.
	accepted       *cache.LRUExpireCache
	acceptedTokens *rate.Limiter
}

func newPaces(now func() time.Time) *paces {
	return &paces{
		accepted:       cache.NewLRUExpireCacheWithClock(maxTokens, clock(now)),
		acceptedTokens: rate.NewLimiter(allTokensPerSecond, allTokensAtOnce),
		senders:        cache.NewLRUExpireCache(maxSenders), users: cache.NewLRUExpireCache(maxSenders),
		allTokens: rate.NewLimiter(allTokensPerSecond, allTokensAtOnce),
	}
}

// of returns the limiter of a client. It is kept for some time after its last use.
func (p *paces) of(all *cache.LRUExpireCache, client string, perSecond rate.Limit, burst int) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit, ok := all.Get(client)
	if !ok {
		limit = rate.NewLimiter(perSecond, burst)
	}
	all.Add(client, limit, time.Hour)
	return limit.(*rate.Limiter)
}

// mayReview reports whether a client may cause a request for a token now. Its hash is key.
func (p *paces) mayReview(key, sender string, now time.Time) bool {
	if _, ok := p.accepted.Get(key); ok && p.acceptedTokens.AllowN(now, 1) {
		return true
	}
	return p.of(p.senders, sender, tokensPerSecond, tokensAtOnce).AllowN(now, 1) && p.allTokens.AllowN(now, 1)
}

// reviewed remembers whether a token was accepted.
func (p *paces) reviewed(key string, ok bool) {
	if ok {
		p.accepted.Add(key, struct{}{}, acceptedToken)
	} else {
		p.accepted.Remove(key)
	}
}

// errBusy is the reason of a question that is not asked.
var errBusy = errors.New("too many questions")

// ask waits until a request for a right of a user may be sent.
func (p *paces) ask(ctx context.Context, user string) error {
	if p.of(p.users, user, rightsPerSecond, rightsAtOnce).Wait(ctx) != nil {
		return errBusy
	}
	return nil
}
