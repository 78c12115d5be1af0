package plugins

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// transportError is the reason why a request got no response, in the router's own words.
type transportError struct {
	text string
	err  error
}

func (e *transportError) Error() string { return e.text }
func (e *transportError) Unwrap() error { return e.err }

// Transport describes why an HTTP request got no response, with a fixed set of texts. The original
// error may quote the response, which has any content and length, and may repeat the secrets of the
// request.
func Transport(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &transportError{words(err), err}
}

func words(err error) string {
	if of, ok := errors.AsType[*net.OpError](err); ok {
		switch of.Op {
		case "proxyconnect":
			return "the proxy: " + words(of.Err)
		case "remote error": // a TLS alert, whose texts are a fixed list
			return "the peer closed the connection: " + printable.Clean(of.Err.Error(), 100)
		}
	}
	if text := certificateWords(err); text != "" {
		return text
	}
	var dns *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the host name does not exist"
	case errors.As(err, &dns):
		return "the host name cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "too many open files"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks HTTP and not HTTPS"
	case errors.As(err, &network) && network.Timeout():
		return timeoutWords(err)
	case strings.Contains(err.Error(), "invalid header field"):
		return "a header is invalid"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before the response"
	case strings.Contains(err.Error(), "response headers exceeded"):
		return "the headers of the response are too large"
	case strings.Contains(err.Error(), "malformed"):
		return "the response is not HTTP"
	}
	return "the connection failed"
}

func timeoutWords(err error) string {
	if of, ok := errors.AsType[*net.OpError](err); ok && of.Op == "dial" {
		return "no connection in time (i/o timeout)"
	}
	if strings.Contains(err.Error(), "TLS handshake timeout") {
		return "no agreement on TLS in time (TLS handshake timeout)"
	}
	return "no answer in time"
}

// certificateWords returns an empty text if the error does not concern TLS.
func certificateWords(err error) string {
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		// the host of the configuration
		return "the names of the certificate do not match " + name.Host
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "the certificate has expired or is not valid yet"
		}
		return "the certificate is not valid"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not speak TLS"
	}
	return ""
}

// Plaintext warns that a credential is sent to host without encryption, with a remedy. It returns
// nil for localhost and for loopback addresses. host has no port.
func Plaintext(at config.Node, credential, host, remedy string) config.Problems {
	if strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback() {
		return nil
	}
	p := at.Problemf("%s to %s without encryption, and anyone on the network path can read it: %s", credential, host, remedy)
	p.Warning = true
	return config.Problems{p}
}
