package main

import (
	"testing"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
	"github.com/deltarouter/deltarouter/sdk/go/deltaroutertest"
)

func TestGolden(t *testing.T) {
	deltaroutertest.Golden(t, "testdata/*.txtar", setup)
}

func TestConfig(t *testing.T) {
	for _, config := range []string{`{"threshold":0}`, `{"treshold":3}`, `{"threshold":"3"}`, `[]`} {
		deltarouter.SetConfig([]byte(config))
		if _, err := setup(); err == nil {
			t.Errorf("%s is accepted", config)
		}
	}
}
