package api

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/pkg/authz"
)

// recheck is the interval at which the rights of a long request are checked again.
const recheck = 10 * time.Second

// asks states which rights an endpoint asks for.
type asks int

const (
	_ asks = iota
	// asksNothing: the endpoint is open
	asksNothing
	// asksPath: the right to its path, get for GET and create for POST
	asksPath
	// asksObjects: the rights on the objects that it shows, in the function that answers
	asksObjects
	// asksBoth: the right to its path, and in the function that answers, the rights on the objects
	asksBoth
)

// endpoint is one path of the API. The table of endpoints is the only list of them, so none can be
// served that does not state which rights it asks for.
type endpoint struct {
	pattern string // of [http.ServeMux]
	asks    asks
	serve   http.HandlerFunc
}

// endpoints returns the API:
//
//	GET  /api/v1/status                                        Status
//	POST /api/v1/reload                                        {"reloaded": true}; 422 if refused
//	POST /api/v1/resync {source, route, relist}                Resynced, after the resync
//	GET  /api/v1/sources                                       {"sources": [SourceInfo…]}
//	GET  /api/v1/sources/{source}?namespace=&name=&labels=&filter=&limit=&continue=   Answer
//	GET  /api/v1/sources/{source}/indexes/{index}?value=&…     Answer; parameters as above
//	                  …?watch=true&…                           WatchEvent lines, endless; no limit, continue
//	GET  /api/v1/routes/{route}/active?limit=&continue=        ActiveAnswer
//	GET  /api/v1/routes/{route}/runs?failed=&held=&since=&until=&limit=   RunsAnswer
//	                  …?watch=true&…                           RunEvent lines, endless
//	GET  /api/v1/routes/{route}/why?source=&namespace=&name=&since=&until=&limit=   WhyAnswer
//	GET  /api/v1/history/{source}?namespace=&name=&since=&until=&states=&limit=   HistoryAnswer
//	POST /api/v1/routes/{route}/pause {for}                    Paused; 422 if a failure paused it
//	POST /api/v1/routes/{route}/resume                         {"resumed": true}; 422 if not paused
//	GET  /api/v1/history?source=&namespace=&since=&until=&initial=   a recording, see docs/TESTING.md
//	GET  /api/v1/tap?route=&rejected=                          Tapped lines, endless
//	GET  /api/v1/deadletters?route=&after=&limit=              {"letters": [Letter…], "next": after}
//	GET  /api/v1/deadletters/{id}                              Letter, with its objects
//	POST /api/v1/deadletters/retry {ids | route, current}      Outcome
//	POST /api/v1/deadletters/drop  {ids | route}               Outcome
//	POST /api/v1/state/backup                                  a copy of the state file
//	POST /api/v1/promote                                       {"asked": true}; 422 if it leads
//
// With Access, it has /healthz, /readyz and /metrics as well.
func (c *control) endpoints() []endpoint {
	all := []endpoint{
		{"GET /api/v1/status", asksPath, concluded(c.statusNow)},
		{"POST /api/v1/reload", asksPath, concluded(c.reloaded)},
		{"POST /api/v1/resync", asksBoth, patiently(concluded(c.resyncAll))},
		{"GET /api/v1/sources", asksPath, concluded(c.sources)},
		{"GET /api/v1/sources/{source}", asksObjects, c.objects},
		{"GET /api/v1/sources/{source}/indexes/{index}", asksObjects, c.objects},
		{"GET /api/v1/routes/{route}/active", asksBoth, concluded(c.actives)},
		{"GET /api/v1/routes/{route}/runs", asksBoth, c.runs},
		{"GET /api/v1/routes/{route}/why", asksBoth, concluded(c.why)},
		{"GET /api/v1/history/{source}", asksObjects, concluded(c.history)},
		{"GET /api/v1/history", asksBoth, c.excerpt},
		{"POST /api/v1/routes/{route}/pause", asksPath, concluded(c.paused)},
		{"POST /api/v1/routes/{route}/resume", asksPath, concluded(c.resumed)},
		{"GET /api/v1/tap", asksBoth, c.tap},
		{"GET /api/v1/deadletters", asksBoth, concluded(c.list)},
		{"GET /api/v1/deadletters/{id}", asksBoth, concluded(c.show)},
		{"POST /api/v1/deadletters/retry", asksBoth, concluded(c.retry)},
		{"POST /api/v1/deadletters/drop", asksBoth, concluded(c.drop)},
		{"POST /api/v1/state/backup", asksPath, c.backup},
		{"POST /api/v1/promote", asksPath, concluded(c.promoted)},
	}
	if c.Standby != nil {
		for i := range all {
			none := c.Cache == nil && strings.Contains(all[i].pattern, "/sources") // of a worker
			if none || !slices.Contains(ofStandby, all[i].pattern) {
				all[i].serve = c.refuseAsStandby
			}
		}
	}
	if c.Access != nil {
		probes := Config{Checks: c.Checks}
		all = append(all, endpoint{"GET /healthz", asksNothing, healthy}, endpoint{"GET /readyz", asksNothing, probes.ready})
		if c.Metrics != nil {
			all = append(all, endpoint{"GET /metrics", asksPath, c.Metrics.ServeHTTP})
		}
	}
	return all
}

// mux serves the endpoints. Without Access, [access.Check] permits everything.
func (c *control) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, e := range c.endpoints() {
		mux.HandleFunc(e.pattern, func(w http.ResponseWriter, r *http.Request) {
			if e.asks == asksPath || e.asks == asksBoth {
				if err := access.Check(r.Context(), rightTo(e.pattern, r)); err != nil {
					fail(w, statusOf(err), err)
					return
				}
			}
			e.serve(w, r)
		})
	}
	return mux
}

// The paths of rights begin with /deltarouter in place of /api: clusters let every user get /api/*,
// for discovery.
const (
	servedUnder = "/api/"
	askedUnder  = "/deltarouter/"
)

// rightTo returns the right to the path of a request. The path is made of the pattern, so it is the
// path of the function that answers, in any spelling of the request.
func rightTo(pattern string, r *http.Request) authz.Right {
	method, path, _ := strings.Cut(pattern, " ")
	if rest, ok := strings.CutPrefix(path, servedUnder); ok {
		path = askedUnder + rest
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create"}[method]
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parts[i] = url.PathEscape(r.PathValue(strings.TrimSuffix(name, "}")))
		}
	}
	return authz.Right{Verb: verb, Path: strings.Join(parts, "/")}
}

// identified adds the sender of a request to its context. Only the open endpoints are served to
// others.
func (c *control) identified(next http.Handler) http.Handler {
	if c.Access == nil {
		return next
	}
	open := make(map[string]bool)
	for _, e := range c.endpoints() {
		if method, path, _ := strings.Cut(e.pattern, " "); e.asks == asksNothing && method == http.MethodGet {
			open[path] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		caller, err := c.Access(r)
		if err != nil {
			if statusOf(err) == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			fail(w, statusOf(err), err)
			return
		}
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), caller)))
	})
}

// lasting returns the context of a long request, from that of the request. It ends with the server,
// and with an error of package access as its cause, when its sender may not make the request any
// more.
func (c *control) lasting(ctx context.Context, path string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var again <-chan time.Time
	stop := func() {}
	caller := access.From(ctx)
	if caller != nil {
		ticker := time.NewTicker(c.Recheck)
		again, stop = ticker.C, ticker.Stop
	}
	go func() {
		defer stop()
		for {
			select {
			case <-c.closing:
				cancel(nil)
			case <-ctx.Done():
				return
			case <-again:
				if err := caller.Again(ctx); err != nil && ctx.Err() == nil {
					c.Log.Info("request ended: the caller lost its permission", "path", path, "user", caller.String(), "err", err)
					cancel(err)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// withdrawn returns the reason why the sender of a long request may not make it any more; nil: the
// sender may.
func withdrawn(ctx context.Context) error {
	if err, ok := errors.AsType[*access.Error](context.Cause(ctx)); ok {
		return err
	}
	return nil
}

// guarded refuses requests of web pages: pages whose own name resolves to the loopback address (by
// the Host header), pages that send forms (by the content type, which makes a browser ask first),
// and all other requests of pages. A browser names the page's site (Origin, Sec-Fetch-Site) even if
// the page cannot read the answer. Browsers cannot reach a socket.
func (c *control) guarded(next http.Handler) http.Handler {
	socket := strings.HasPrefix(c.Addr, UnixPrefix)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !socket && c.Access == nil && !loopback(r.Host) {
			fail(w, http.StatusForbidden, fmt.Errorf("host %q is not a loopback address: use 127.0.0.1 or localhost", r.Host))
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Origin") != "" || site != "" && site != "none" && site != "same-origin" {
			fail(w, http.StatusForbidden, errors.New("web pages may not use the router's API"))
			return
		}
		if r.Method == http.MethodPost {
			if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
				fail(w, http.StatusUnsupportedMediaType, errors.New("the Content-Type must be application/json"))
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}
