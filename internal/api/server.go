package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The limits for clients. Every client that reaches the port can use the probes.
const (
	// connections, of about 20 KB each
	maxProbes      = 256
	maxControls    = 64
	maxPerAddress  = 64              // connections of a client
	probeTimeout   = time.Second     // until the end of the header of a probe
	headerTimeout  = 5 * time.Second // the same for the control API
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second // for a scrape of many series over a slow line
	idleTimeout    = 10 * time.Second // the probes close each connection after one request
	maxHeaderBytes = 16 << 10
	maxMessage     = 1 << 10 // bytes of a check's message
)

// Check is the state of a part of the router. /readyz shows its name, and [Status] all of it.
type Check struct {
	Name string `json:"name"` // sources/pods
	OK   bool   `json:"ok"`
	// Holds: the router is not ready while the check is not OK. A check without Holds is only
	// shown: a source whose resource is forbidden or does not exist yet must not take the other
	// sources out of service.
	Holds   bool   `json:"holds,omitempty"`
	Message string `json:"message,omitempty"` // the reason if not OK; never an object's content
}

// Config configures a Server.
type Config struct {
	Addr    string       // host:port in the form of listen.probes; port 0: a free port
	Metrics http.Handler // serves /metrics; nil: no metrics
	// in the order of /readyz; called for each request, from any goroutine; nil: always ready
	Checks func() []Check
	// Role returns the role of a member of a fleet, the first line of /readyz; nil or empty: the
	// router is in none.
	Role func() string
	Log  *slog.Logger
}

// Server serves the probes, or the control API.
type Server struct {
	name string      // its key under listen: probes or api
	tls  *tls.Config // nil: without TLS
	log  *slog.Logger
	http http.Server
	done chan struct{} // closed when serving has ended

	mu       sync.Mutex
	listener net.Listener // nil before Start
	closed   bool
}

// New makes a Server of the probes. It does not listen yet.
func New(cfg Config) *Server {
	s := newServer("probes", cfg.Addr, maxProbes, probes(cfg), cfg.Log)
	s.http.ReadHeaderTimeout = probeTimeout
	s.http.SetKeepAlivesEnabled(false) // idle connections would count against the limit
	return s
}

// newServer makes a Server with at most that many connections.
func newServer(name, addr string, most int, handler http.Handler, log *slog.Logger) *Server {
	s := &Server{name: name, log: log, done: make(chan struct{})}
	s.http = http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // mistakes of clients
	}
	bound(&s.http, most, maxPerAddress, log.With("for", name))
	return s
}

// Start listens and serves until [Server.Close]. It fails if the address is unavailable, or if the
// Server was started or closed before.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.closed {
		return fmt.Errorf("listen.%s: the server was started or closed before: this is a bug of the router", s.name)
	}
	socket, err := Listen(ctx, s.http.Addr)
	if err != nil {
		return fmt.Errorf("listen.%s: cannot listen on %q, choose another address: %w", s.name, s.http.Addr, err)
	}
	s.listener = socket
	if s.tls != nil {
		s.listener = tls.NewListener(s.listener, s.tls)
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the server failed and serves no more requests", "for", s.name, "err", err)
		}
	}()
	s.log.Info("listening", "for", s.name, "address", socket.Addr().String(), "tls", s.tls != nil)
	return nil
}

// Addr returns the address of the listener, with the real port instead of 0; empty before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close stops listening and waits for running requests until ctx is done. It may be called without
// Start and more than once.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	started := s.listener != nil
	s.closed = true
	s.mu.Unlock()
	if !started {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("listen.%s: requests were cut off: %w", s.name, err), s.http.Close())
	}
	<-s.done
	return err
}

// probes serves GET and HEAD on three paths. The mux answers 404 and 405 to all other requests.
func probes(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", cfg.ready)
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") }

// ready lists the failed checks in the format of Kubernetes' own components; the last line is the
// summary. The list has no reasons, because reasons contain names of hosts and objects, and texts
// of guests. The control API shows the reasons.
func (cfg Config) ready(w http.ResponseWriter, _ *http.Request) {
	var checks []Check
	if cfg.Checks != nil {
		checks = cfg.Checks()
	}
	var b strings.Builder
	if cfg.Role != nil && cfg.Role() != "" {
		fmt.Fprintln(&b, cfg.Role())
	}
	for _, c := range checks {
		if !c.OK {
			fmt.Fprintf(&b, "[-]%s: not ok\n", c.Name)
		}
	}
	if holding := holding(checks); len(holding) > 0 {
		fmt.Fprintf(&b, "not ready: waiting for %s\n", strings.Join(holding, ", "))
		answer(w, http.StatusServiceUnavailable, b.String())
		return
	}
	b.WriteString("ready\n")
	answer(w, http.StatusOK, b.String())
}

// holding returns the names of the failed checks that make the router not ready.
func holding(checks []Check) (names []string) {
	for _, c := range checks {
		if !c.OK && c.Holds {
			names = append(names, c.Name)
		}
	}
	return names
}

func answer(w http.ResponseWriter, status int, text string) {
	begin(w, status, "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // a client that has disconnected needs no answer
}

// begin writes the status and headers of an answer.
func begin(w http.ResponseWriter, status int, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// short truncates a message.
func short(message string) string {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
