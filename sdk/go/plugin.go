package deltarouter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Handler decides about one delta:
//
//   - No events and no error: the delta is done, and nothing is delivered.
//   - Events and no error: the events are delivered.
//   - [ErrDrop]: the delta is counted as dropped.
//   - An error of [Retry]: the delta is tried again.
//   - Any other error: the delta fails. The retry and onFailure of the route decide the next step.
//
// With an error the events are ignored.
type Handler func(d Delta) ([]Event, error)

// Registered is the result of [Handle] and [Setup]. It allows a call in the declaration of a
// package-level variable.
type Registered struct{}

// ErrDrop ends the delta without events and counts it as dropped.
var ErrDrop = errors.New("dropped by the handler")

// errNoHandler is the error of a handler that is registered in main, or not at all.
var errNoHandler = errors.New("no handler is registered: write `var _ = deltarouter.Handle(handle)` at package level; main is not called")

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// Retry marks err as temporary. The delta is tried again after the given time (0: the delay of the
// route's retry; the maximum is about 49 days).
func Retry(err error, after time.Duration) error { return &retryError{err, after} }

// IsRetry reports whether [Retry] made err.
func IsRetry(err error) bool {
	var retry *retryError
	return errors.As(err, &retry)
}

// plugin is the handler of this program. It needs no lock, because an instance of a module runs one
// call at a time.
var plugin struct {
	setup  func() (Handler, error)
	config []byte // JSON
	handle Handler
}

// Handle registers the handler.
func Handle(h Handler) Registered {
	return Setup(func() (Handler, error) { return h, nil })
}

// Setup registers a function that returns the handler. It is called once per instance, when
// [Config] has the configuration. Its error ends the start of the router with its message.
func Setup(f func() (Handler, error)) Registered {
	plugin.setup = f
	return Registered{}
}

// Config decodes the handler's configuration into v like encoding/json. A key without a field in v
// is an error. Without a configuration v is unchanged, so v may contain defaults.
func Config(v any) error {
	if len(plugin.config) == 0 || string(plugin.config) == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(plugin.config))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// SetConfig sets the handler's `config` as JSON. The router calls it, and tests may call it.
func SetConfig(data []byte) { plugin.config = bytes.Clone(data) }

// start calls the setup function. It turns a panic into an error.
func start(config []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	SetConfig(config)
	if plugin.setup == nil {
		return errNoHandler
	}
	if plugin.handle, err = plugin.setup(); err == nil && plugin.handle == nil {
		err = errNoHandler
	}
	return err
}
