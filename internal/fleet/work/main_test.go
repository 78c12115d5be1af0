package work_test

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) {
	effort.Waiting()
	leaks.Main(m)
}
