package worker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// version is a configuration, and the content that it was made of, see contentOf.
type version struct {
	plan    *compile.Plan
	content string
}

// contentOf identifies a configuration and the digests of modules beside it; empty: it cannot be
// read.
func contentOf(path string, cfg *config.Config) string {
	if cfg == nil {
		return ""
	}
	pins, _ := files.ReadFile(lockfile.Beside(path)) // usually there is none
	return fmt.Sprintf("%s %x", cfg.Hash, sha256.Sum256(pins))
}

// file is the configuration file of a worker.
type file struct {
	content string // of which the plan was made
	refused refusal
	coming  coming
	former  *version // the one before the present one, see back; nil: there is none
}

// refusal is a content that cannot be used.
type refusal struct {
	content string
	until   time.Time // zero: it has mistakes
}

// holds reports whether a content cannot be used.
func (r refusal) holds(content string) bool {
	return r.content == content && (r.until.IsZero() || time.Now().Before(r.until))
}

// coming is a changed configuration that the worker does not use yet.
type coming struct {
	next  *version
	since time.Time
	said  bool // that it waits
}

// read returns the configuration with a content, see [plan].
func (c *coming) read(ctx context.Context, opts Options, content string, former map[string][]byte) (*version, error) {
	if c.next != nil && c.next.content == content {
		return c.next, nil
	}
	*c = coming{}
	p, err := plan(ctx, opts, former)
	if err != nil {
		return nil, err
	}
	*c = coming{next: &version{p, content}, since: time.Now()}
	return c.next, nil
}

// leaveAfter is the time after which a worker leaves a route that loses its workers, if the route
// has no messages and the leader does not say so.
const leaveAfter = 30 * time.Second

// adopt returns a changed configuration when the worker may use it. As long as the leader has the
// present configuration of a route that the next one changes, or takes the workers of, the deltas
// of the route need a worker that has it, too.
func (w *worker) adopt(ctx context.Context, next *version) *version {
	hashes := hashesOf(next.plan)
	for token, r := range w.routes {
		hash, stays := hashes[token]
		record, _ := w.owner.Record(token)
		if hash == r.hash || record.Hash != r.hash {
			continue
		}
		if !stays && time.Since(w.file.coming.since) > leaveAfter && w.drained(ctx, token) {
			continue
		}
		if !w.file.coming.said {
			w.file.coming.said = true
			w.log.Info("the configuration has changed: it is used when the leader uses it, whose deltas need the present one", "route", r.Name)
		}
		return nil
	}
	return next
}

// back returns the former configuration if the leader has deltas of a route that only that one has;
// nil: it has none. The worker was faster than the leader, which announced the route later, and
// does not use the present configuration before they are handled.
func (w *worker) back(ctx context.Context) *version {
	if w.file.former == nil {
		return nil
	}
	for token, hash := range hashesOf(w.file.former.plan) {
		record, _ := w.owner.Record(token)
		if w.routes[token] != nil || record.Hash != hash || w.drained(ctx, token) {
			continue
		}
		w.log.Info("the leader has deltas of a route that needs the former configuration: the worker goes back to it", "route", record.ID)
		return w.file.former
	}
	return nil
}

// hashesOf returns the hashes of the routes with workers, by token.
func hashesOf(p *compile.Plan) map[string]string {
	hashes := make(map[string]string)
	for _, r := range workersOf(p) {
		if hash, err := work.HashOf(p.Config, r.Route); err == nil { // the configuration is valid
			hashes[fleet.Token(r.ID)] = hash
		}
	}
	return hashes
}

// drained reports whether a route has no messages.
func (w *worker) drained(ctx context.Context, token string) bool {
	record, _ := w.owner.Record(token)
	for _, g := range record.Generations {
		asking, cancel := context.WithTimeout(ctx, closeTimeout)
		empty, err := w.empty(asking, token, g.Number)
		cancel()
		if err != nil || !empty {
			return false
		}
	}
	return true
}
