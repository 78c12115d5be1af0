package client

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Body is a response body that ends its request when it is closed, or when a read takes too long:
// the error is then ErrSlow. The time between two reads does not count.
type Body struct {
	io.ReadCloser
	idle   time.Duration
	timer  *time.Timer
	slow   atomic.Bool
	cancel context.CancelCauseFunc
}

// NewBody returns a body that calls cancel when it is closed, or when a read takes longer than
// idle; 0: no limit.
func NewBody(rc io.ReadCloser, idle time.Duration, cancel context.CancelCauseFunc) *Body {
	b := &Body{ReadCloser: rc, idle: idle, cancel: cancel}
	if idle > 0 {
		b.timer = time.AfterFunc(idle, func() { b.slow.Store(true); cancel(ErrSlow) })
		b.timer.Stop()
	}
	return b
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if b.timer == nil {
		return b.ReadCloser.Read(p)
	}
	b.timer.Reset(b.idle)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && b.slow.Load() {
		err = ErrSlow
	}
	return n, err
}

// Close implements io.Closer.
func (b *Body) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// statusError makes an error of a response that is not OK, from its Status or from its code.
func statusError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var s metav1.Status
	if err := json.Unmarshal(text, &s); err != nil || s.Kind != "Status" {
		message := strings.TrimSpace(string(text[:min(len(text), 200)]))
		s = apierrors.NewGenericServerResponse(resp.StatusCode, "get", schema.GroupResource{}, "", message, 0, true).ErrStatus
		s.Message = resp.Status // the page of a proxy explains nothing
		s.Kind = ""
	}
	if s.Code == 0 {
		s.Code = int32(resp.StatusCode) //nolint:gosec // three digits
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		if s.Details == nil {
			s.Details = &metav1.StatusDetails{}
		}
		s.Details.RetryAfterSeconds = int32(min(seconds, 3600)) //nolint:gosec // bounded
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// ErrIncomplete says that the last pages of a list are missing.
var ErrIncomplete = errors.New("the API server did not return all pages of a list")

// Pages reads all pages of a list. page returns the page of a token, and the first one for "". A
// list without its last pages cannot be compared with a cache: Pages then returns ErrIncomplete.
func Pages(page func(token string) (*internalversion.List, error)) (all *internalversion.List, err error) {
	for token := ""; ; {
		list, err := page(token)
		if err != nil && token != "" && IsExpired(err) {
			// the cause is not final, so it is not wrapped
			return nil, fmt.Errorf("%w: %s", ErrIncomplete, err.Error())
		}
		if err != nil {
			return nil, err
		}
		next := list.Continue
		if all == nil {
			all = list
		} else {
			all.Items = append(all.Items, list.Items...)
		}
		if all.Continue = ""; next == "" {
			return all, nil
		}
		if next == token {
			return nil, fmt.Errorf("%w: it returned the same page twice", ErrIncomplete)
		}
		token = next
	}
}

// IsExpired reports whether the API server has dropped the history since a resourceVersion.
func IsExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// IsAhead reports whether the API server has not yet reached the requested resourceVersion.
func IsAhead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version")
}

// IsDenied reports whether the API server refuses the credentials or the request.
func IsDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// IsAnswer reports whether the API server has refused the request for good: a retry would fail too.
func IsAnswer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusTooEarly, http.StatusUnauthorized, http.StatusForbidden:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// maxRetryAfter bounds the delays that an API server, or a proxy before it, may request.
const maxRetryAfter = time.Minute

// RetryAfter returns the delay that the API server requests before the next try, at most a minute.
func RetryAfter(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return 0
}

// decoded returns a body without its encoding. The client requests none, but some proxies compress
// each answer.
func decoded(body io.ReadCloser, encoding string) (io.ReadCloser, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		return &gzipped{ReadCloser: body}, nil
	}
	return body, fmt.Errorf("the answer is encoded with %q, which was not requested: does a proxy before the API server compress it?", encoding)
}

// gzipped decompresses a body. It reads nothing before its first Read.
type gzipped struct {
	io.ReadCloser

	in *gzip.Reader
}

// Read implements io.Reader.
func (g *gzipped) Read(p []byte) (n int, err error) {
	if g.in == nil {
		if g.in, err = gzip.NewReader(g.ReadCloser); err != nil {
			g.in = nil
			return 0, err
		}
	}
	return g.in.Read(p)
}
