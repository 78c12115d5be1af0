package main

import (
	"testing"

	"github.com/deltarouter/deltarouter/sdk/go/deltaroutertest"
)

func TestGolden(t *testing.T) {
	deltaroutertest.Golden(t, "../summary.txtar", setup)
}
