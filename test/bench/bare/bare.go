// Package bare is the program that a platform engineer writes first: a loop that lists and watches,
// and posts each change, one at a time. The measurements compare the router and other programs with
// it.
package bare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Loop watches one resource and posts its changes.
type Loop struct {
	Client   *http.Client
	URL      string // of the resource, on the API server
	Receiver string
	Body     func(line []byte) (any, error) // from an event of the watch
}

// Run posts the changes after the initial objects until the watch ends or a request fails. It calls
// synced before the first change, and posted after each one.
func (l *Loop) Run(synced, posted func()) error {
	watch, err := l.Client.Get(l.URL + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	if err != nil {
		return err
	}
	defer watch.Body.Close()
	if watch.StatusCode != http.StatusOK {
		return errors.New(watch.Status)
	}
	lines := bufio.NewScanner(watch.Body)
	lines.Buffer(nil, 1<<20)
	for initial := true; lines.Scan(); {
		switch line := lines.Bytes(); {
		case bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)):
			if initial && bytes.Contains(line, []byte("k8s.io/initial-events-end")) {
				initial = false
				synced()
			}
		case bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)):
			return fmt.Errorf("the watch has ended: %s", line)
		case !initial:
			if err := l.post(line); err != nil {
				return err
			}
			posted()
		}
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// post does not look at the status of the answer.
func (l *Loop) post(line []byte) error {
	change, err := l.Body(line)
	if err != nil {
		return err
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	response, err := http.Post(l.Receiver, "application/json", bytes.NewReader(body)) //nolint:gosec // the receiver of the measurement
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}
