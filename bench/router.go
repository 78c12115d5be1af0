package main

import "errors"

func consumeRouter(consumer) error { return errors.New("soon") }
