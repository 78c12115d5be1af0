package deltarouter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Handler decides about one delta. No events and no error means that there is nothing to deliver.
// With an error, the events do not count: see [Retry] and [ErrDrop]; any other error fails the
// delta, and the route's retry and onFailure decide what comes of it.
type Handler func(d Delta) ([]Event, error)

// Registered is the result of [Handle] and [Setup]; it only lets them stand in a package-level
// variable.
type Registered struct{}

// ErrDrop ends the delta without events and counts it as dropped.
var ErrDrop = errors.New("dropped by the handler")

// errNoHandler is what the author sees who registers in main.
var errNoHandler = errors.New("no handler is registered: write `var _ = deltarouter.Handle(handle)` at package level; main is not called")

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// Retry says that err goes away by itself: the delta is tried again, not before the given time (0:
// as the route's retry says; at most about 49 days).
func Retry(err error, after time.Duration) error { return &retryError{err, after} }

// IsRetry reports whether err was made by [Retry].
func IsRetry(err error) bool {
	var retry *retryError
	return errors.As(err, &retry)
}

// plugin is the one handler of this program. An instance of a module runs one call at a time, so it
// needs no lock.
var plugin struct {
	setup  func() (Handler, error)
	config []byte // JSON
	handle Handler
}

// Handle registers the handler.
func Handle(h Handler) Registered {
	return Setup(func() (Handler, error) { return h, nil })
}

// Setup registers a function that makes the handler. It is called once per instance, when [Config]
// has the configuration; its error ends the start of the router with its message.
func Setup(f func() (Handler, error)) Registered {
	plugin.setup = f
	return Registered{}
}

// Config decodes the handler's configuration into v, as encoding/json does, but a key that v has no
// field for is an error. Without a configuration v stays as it is, so defaults are what v held
// before.
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

// SetConfig is what the router does with a handler's `config`, as JSON. A test may do it too.
func SetConfig(data []byte) { plugin.config = bytes.Clone(data) }

// start makes the handler; a panic of its setup is an error.
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
