package tlsfiles

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Server is the TLS side of a listener. It reads its files again when they change, so that renewed
// certificates are used for the next connection. It is safe for concurrent use.
type Server struct {
	files config.Listen
	log   *slog.Logger

	mu     sync.Mutex
	of     [sha256.Size]byte // the hash of the files of current
	failed [sha256.Size]byte // the hash of the files that were reported as unusable
	used   served
}

// served is the usable content of the files.
type served struct {
	tls *tls.Config
	cas *x509.CertPool // nil: no clientCA is configured
}

// NewServer reads the files. The error names the key of an unusable one, never a content.
func NewServer(files config.Listen, log *slog.Logger) (*Server, error) {
	s := &Server{files: files, log: log}
	var err error
	if s.of, err = s.print(); err == nil {
		s.used, err = s.load()
	}
	if err != nil {
		return nil, fmt.Errorf("listen.tls.%w", err)
	}
	return s, nil
}

// Config returns the settings of a listener, which follow the files.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current().tls, nil },
	}
}

// ClientCAs returns the authorities of client certificates; nil: none are configured, and no
// certificate is requested.
func (s *Server) ClientCAs() *x509.CertPool { return s.current().cas }

// current returns the last usable content of the files.
func (s *Server) current() served {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		of, err := s.print()
		if err == nil && of == s.of {
			return s.used
		}
		var next served
		if err == nil {
			if next, err = s.load(); err == nil {
				s.of, s.used = of, next
				s.log.Info("the TLS files changed, new connections use them", "for", "listen.tls")
				return next
			}
			// The certificate may be of another moment than its key.
			if again, err := s.print(); err == nil && again != of {
				continue
			}
		}
		if of != s.failed {
			s.failed = of
			s.log.Warn("the TLS files changed and cannot be used, new connections use the former ones", "for", "listen.tls", "err", err)
		}
		return s.used
	}
}

// print returns a hash of the files, also if some cannot be read.
func (s *Server) print() (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	for _, one := range []secret{{"cert", s.files.TLS.Cert}, {"key", s.files.TLS.Key}, {"clientCA", s.files.TLS.ClientCA}} {
		text := ""
		if !one.value.IsZero() {
			var failed error
			if text, failed = one.value.Value(); failed != nil && err == nil {
				err = fmt.Errorf("%s: %w", one.key, failed)
			}
		}
		hash.Write([]byte(text + "\x00"))
	}
	hash.Sum(sum[:0])
	return sum, err
}

// load returns the settings of the present content of the files.
func (s *Server) load() (now served, err error) {
	cert, err := s.files.TLS.Cert.Value()
	if err != nil {
		return now, fmt.Errorf("cert: %w", err)
	}
	key, err := s.files.TLS.Key.Value()
	if err != nil {
		return now, fmt.Errorf("key: %w", err)
	}
	own, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		// The error of crypto/tls describes the cause and never quotes the input.
		return now, fmt.Errorf("cert and listen.tls.key: %w", err)
	}
	now.tls = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own},
		NextProtos: []string{"http/1.1"}, // HTTP/2 would bypass the limit of connections
		// A resumed session would keep a client certificate that is not trusted any more.
		SessionTicketsDisabled: true,
	}
	if s.files.TLS.ClientCA.IsZero() {
		return now, nil
	}
	text, err := s.files.TLS.ClientCA.Value()
	if err != nil {
		return now, fmt.Errorf("clientCA: %w", err)
	}
	if now.cas = x509.NewCertPool(); !now.cas.AppendCertsFromPEM([]byte(text)) {
		return now, errors.New("clientCA: no PEM certificate found")
	}
	now.tls.ClientAuth = tls.RequestClientCert // each request verifies it, see package access
	return now, nil
}
