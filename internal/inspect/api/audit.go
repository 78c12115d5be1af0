package api

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
)

// maxAudit bounds the logged part of a request's body in bytes.
const maxAudit = 256

// audited logs each request that changes something: its body, its sender and its result.
func audited(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		asked := &head{ReadCloser: r.Body}
		answered := &status{ResponseWriter: w, code: http.StatusOK}
		r.Body = asked
		next.ServeHTTP(answered, r)
		log.Info("API request for a change", "method", r.Method, "path", r.URL.Path, "body", asked.text.String(), "peer", r.RemoteAddr, "status", answered.code)
	})
}

// head keeps the beginning of a body.
type head struct {
	io.ReadCloser

	text bytes.Buffer
}

func (h *head) Read(p []byte) (n int, err error) {
	n, err = h.ReadCloser.Read(p)
	h.text.Write(p[:min(n, maxAudit-h.text.Len())])
	return n, err
}

// status keeps the status of an answer.
type status struct {
	http.ResponseWriter

	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Accept sets the connection's remote address to the process on the other side, if the system
// reports it.
func (s *socket) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{conn, peerOf(conn)}, nil
}

// peerConn is a connection over a socket.
type peerConn struct {
	net.Conn

	peer peer
}

// RemoteAddr implements [net.Conn].
func (c peerConn) RemoteAddr() net.Addr { return c.peer }

// peer describes the process on the other side of a socket.
type peer string

// Network implements [net.Addr].
func (peer) Network() string { return "unix" }

// String implements [net.Addr].
func (p peer) String() string { return string(p) }
