package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// consumeLimit reads the watch and counts its lines: no watch of the same bytes costs less.
func consumeLimit(c consumer) error {
	c.begin()
	response, err := http.Get(c.url + "/api/v1/pods?watch=true&sendInitialEvents=true")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	buffer, lines := make([]byte, 128<<10), 0
	synced, last := c.objects+1, c.objects+1+c.updates // the bookmark is a line too
	for lines < last {
		n, err := response.Body.Read(buffer)
		before := lines
		lines += bytes.Count(buffer[:n], []byte{'\n'})
		if before < synced && lines >= synced {
			if err := c.synced(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return c.done()
}
