package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// The reasons of errors, for [errors.Is].
var (
	// ErrUnavailable: the registry does not answer now, so a later attempt may succeed.
	ErrUnavailable = errors.New("the registry is not available")
	// ErrNotCached: the content is not on this machine, and nothing was requested.
	ErrNotCached = errors.New("it is not on this machine")
	// ErrRefused: the registry does not accept the credentials, or wants some.
	ErrRefused = errors.New("the registry refuses access")
	// ErrNotFound: the registry does not have the content.
	ErrNotFound = errors.New("the registry does not have it")

	errTooLarge = errors.New("it is too large")
	errDigest   = errors.New("its content differs from its digest")
)

// worded returns an error of a request in our words. The texts of a registry are not trusted.
func (r *Repository) worded(ctx context.Context, err error) error {
	var answer *errcode.ErrorResponse
	switch {
	case errors.Is(err, errRedirect), errors.Is(err, errAddress), errors.Is(err, errTooLarge), errors.Is(err, errDigest):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: it does not answer in time, see registry.timeout", ErrUnavailable)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errdef.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, errdef.ErrSizeExceedsLimit):
		return errTooLarge
	case errors.As(err, &answer):
		return r.answered(answer.StatusCode)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return r.answered(http.StatusUnauthorized)
	}
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		return fmt.Errorf("%w: %s", ErrUnavailable, printable.Line(short(inner.Err.Error())))
	}
	if network := net.Error(nil); errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the connection ended: %s", ErrUnavailable, printable.Line(short(err.Error())))
	}
	return fmt.Errorf("the answer of the registry is invalid: %s", printable.Line(short(err.Error())))
}

// answered returns the error for the status of an answer.
func (r *Repository) answered(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w (HTTP %d), or does not have it: %s", ErrRefused, status, r.keys.hint(r.ref.Registry))
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return fmt.Errorf("%w: HTTP %d", ErrUnavailable, status)
	}
	return fmt.Errorf("the registry answers with HTTP %d", status)
}

// short truncates a text.
func short(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
