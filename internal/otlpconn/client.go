package otlpconn

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Client sends requests with one of the protocols. It is safe for concurrent use.
type Client interface {
	// Send sends a request and fills the receiver's response. An error of [plugins.Reject] concerns
	// the request. Any other error means that the receiver is unavailable.
	Send(ctx context.Context, request, response proto.Message, headers http.Header) error
	Close() error
}

// New returns the client of a configuration that is valid. It does not connect.
func New(c *Config, s Signal) (Client, error) {
	if c.Protocol == "http" {
		return newHTTP(c, s), nil
	}
	return newGRPC(c, s)
}

// BlameError is an error about some records of a request, or about their number.
type BlameError struct{ error }

func (e *BlameError) Unwrap() error { return e.error }

// Refusal is a rejection with the receiver's explanation, which may repeat parts of the request.
type Refusal struct {
	error

	Said  []byte
	Whole bool // Said is the complete explanation
}

func (e *Refusal) Unwrap() error { return e.error }

// refused adds the beginning of the explanation to a rejection. It returns other errors unchanged.
func refused(err error, said []byte, whole bool) error {
	if plugins.ClassOf(err) != plugins.Rejected {
		return err
	}
	if len(said) > httpsink.MaxAnswer {
		said, whole = said[:httpsink.MaxAnswer], false
	}
	return &Refusal{err, bytes.Clone(said), whole}
}

// tooMuch rejects a request, of which a smaller part may be accepted.
func tooMuch(err error) error { return &BlameError{plugins.Reject(err)} }

// maxAnswer is the maximum size of the body of a response with status 200, in bytes.
const maxAnswer = 1 << 20

// wakeTime is the maximum wait of a call for a connection after a failed one.
const wakeTime = 500 * time.Millisecond

type grpcClient struct {
	conn   *grpc.ClientConn
	method string
}

// fresh are gRPC credentials that read the files again for each connection.
type fresh struct {
	credentials.TransportCredentials
	files *tlsfiles.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (f fresh) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	settings, err := f.files.Load()
	if err != nil {
		return nil, nil, err
	}
	// gRPC verifies the certificate for the authority, regardless of the name in the settings.
	return credentials.NewTLS(settings).ClientHandshake(ctx, cmp.Or(settings.ServerName, authority), conn)
}

// Clone implements credentials.TransportCredentials.
func (f fresh) Clone() credentials.TransportCredentials { return f }

func newGRPC(c *Config, s Signal) (*grpcClient, error) {
	u := c.URL(s)
	transport := insecure.NewCredentials()
	if u.Scheme == "https" {
		transport = fresh{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), &c.TLS}
	}
	// The delays are short, because the circuit breaker of the host limits the attempts. A
	// connection may take longer than a request, so an unresponsive receiver ends a request by its
	// timeout.
	pause := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	conn, err := grpc.NewClient("dns:///"+u.Host, grpc.WithTransportCredentials(transport), grpc.WithUserAgent("deltarouter"), grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(httpsink.MaxHeaders),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause, MinConnectTimeout: 2 * c.Timeout}))
	if err != nil {
		return nil, err
	}
	return &grpcClient{conn, s.Method}, nil
}

// Close implements [Client].
func (g *grpcClient) Close() error {
	if err := g.conn.Close(); status.Code(err) != codes.Canceled { // it was closed before
		return err
	}
	return nil
}

// Send implements [Client].
func (g *grpcClient) Send(ctx context.Context, request, response proto.Message, headers http.Header) error {
	md := metadata.MD{}
	for name, values := range headers {
		md.Set(name, values...) // in lower case
	}
	ctx = metadata.NewOutgoingContext(ctx, md)
	g.wake(ctx)
	var of peer.Peer // the peer of the call, if it got one
	err := g.conn.Invoke(ctx, g.method, request, response, grpc.Peer(&of))
	if err == nil {
		return nil
	}
	return refused(judge(err, of.Addr == nil), []byte(status.Convert(err).Message()), true)
}

// wake makes gRPC retry a lost or failed connection at once. Otherwise the next call would return
// the error of the last attempt.
func (g *grpcClient) wake(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	tried := false
	for now := g.conn.GetState(); now != connectivity.Ready; now = g.conn.GetState() {
		switch {
		case now == connectivity.Idle:
			g.conn.Connect()
		case now == connectivity.TransientFailure && !tried:
			g.conn.ResetConnectBackoff()
			tried = true
		}
		if !g.conn.WaitForStateChange(ctx, now) {
			return
		}
	}
}

// judge converts a gRPC status to an error, by the specification of OTLP. local: there was no
// connection.
func judge(err error, local bool) error {
	s := status.Convert(err)
	var later *errdetails.RetryInfo
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			later = info
		}
	}
	// The message of a server can repeat parts of the request. The message of the local gRPC, which
	// has the reason of a failed connection, cannot.
	denied := s.Code() == codes.Unauthenticated || s.Code() == codes.PermissionDenied
	if err = fmt.Errorf("answered %v", s.Code()); denied {
		err = fmt.Errorf("%w%s", err, httpsink.Unauthenticated)
	}
	category := err.Error()
	if local {
		err, category = errors.New(firstLine(s.Message())), "no connection"
	}
	err = plugins.Categorize(err, category)
	switch s.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.DataLoss:
	case codes.Unauthenticated, codes.PermissionDenied: // concerns the router, not the event
	case codes.ResourceExhausted:
		if later == nil {
			return tooMuch(fmt.Errorf("%w without a retry delay: the request may be larger than the receiver accepts", err))
		}
	case codes.InvalidArgument, codes.Internal, codes.Unknown: // from an exporter of a collector
		return tooMuch(err)
	default:
		return plugins.Reject(err)
	}
	return plugins.RetryLater(err, min(max(later.GetRetryDelay().AsDuration(), 0), httpsink.MaxRetryAfter))
}

func firstLine(s string) string {
	const most = 300
	s, _, _ = strings.Cut(s, "\n")
	return s[:min(len(s), most)]
}

type httpClient struct {
	url     *url.URL
	codes   httpsink.Codes
	clients tlsfiles.Clients
}

func newHTTP(c *Config, s Signal) *httpClient {
	return &httpClient{c.URL(s), c.Codes, tlsfiles.Clients{Files: &c.TLS, New: func(t *tls.Config) *http.Client { return httpsink.NewClient(t, 0) }}}
}

// Close implements [Client].
func (h *httpClient) Close() error {
	h.clients.Close()
	return nil
}

// Send implements [Client].
func (h *httpClient) Send(ctx context.Context, request, response proto.Message, headers http.Header) error {
	body, err := proto.Marshal(request)
	if err != nil {
		return plugins.Reject(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("not valid in a request")
	}
	req.Header = headers.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "deltarouter")
	client, err := h.clients.Get()
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return plugins.Transport(err)
	}
	defer resp.Body.Close()
	if err := h.judge(resp); err != nil {
		text, whole := httpsink.Drain(resp, cancel)
		return refused(err, messageOf(resp, text), whole)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the response ended early: %w", plugins.Transport(err))
	}
	if isProto(resp) && proto.Unmarshal(text, response) != nil {
		return errors.New("the response is not that of an OTLP receiver")
	}
	return nil
}

// judge converts an HTTP status to an error, by the specification of OTLP. But a failed
// authentication is not an error of the request.
func (h *httpClient) judge(resp *http.Response) error {
	code := resp.StatusCode
	said := plugins.Categorize(errors.New(httpsink.Answered(code)+httpsink.Redirected(resp)), httpsink.Answered(code))
	switch {
	case h.codes.IsUnavailable(code, isRetryable(code)):
		return plugins.RetryLater(said, httpsink.RetryAfter(resp.Header, time.Now()))
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity, code >= 500:
		return tooMuch(said)
	case code < 200 || code >= 300:
		return plugins.Reject(said)
	}
	return nil
}

func isProto(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf")
}

// messageOf returns the text of an error response: the message of a Status, or the body itself.
func messageOf(resp *http.Response, body []byte) []byte {
	var of spb.Status
	if isProto(resp) && proto.Unmarshal(body, &of) == nil {
		return []byte(of.GetMessage())
	}
	return body
}

// isRetryable reports whether the specification of OTLP, or [httpsink.IsTemporary], says that the
// receiver is unavailable.
func isRetryable(code int) bool {
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return httpsink.IsTemporary(code)
}
