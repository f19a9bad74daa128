// Command kvroll-cluster is a multi-call binary: etcd, the Kubernetes components, CoreDNS and Helm in one link.
//
// One link takes half the time and disk of eight, and one go.sum pins them all. The name it is called by (a symlink)
// picks the component; `kvroll-cluster <component> args...` does the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const program = "kvroll-cluster"

// coreDNSFlags are what coremain registers on flag.CommandLine at init; kube-proxy and kubelet adopt everything they
// find there, so these must be gone before another component builds its own flags.
var coreDNSFlags = []string{"conf", "plugins", "pidfile", "version", "quiet", "dns.port", "p"}

func main() {
	args := os.Args
	if filepath.Base(args[0]) == program && len(args) > 1 {
		args = args[1:]
	}
	name := filepath.Base(args[0])
	os.Args = append([]string{name}, args[1:]...)
	if name != "coredns" {
		flag.CommandLine = without(flag.CommandLine, coreDNSFlags)
	}
	os.Exit(run(name))
}

func run(name string) int {
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return 0
	case "kube-apiserver":
		return cli.Run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		return cli.Run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		return cli.Run(scheduler.NewSchedulerCommand())
	case "kube-proxy":
		return cli.Run(kubeproxy.NewProxyCommand())
	case "kubelet":
		return cli.Run(kubelet.NewKubeletCommand(context.Background()))
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		return 0
	case "coredns":
		coremain.Run()
		return 0
	case "helm":
		return runHelm()
	default:
		fmt.Fprintf(os.Stderr, "%s: unknown component %q\n", program, name)
		return 2
	}
}

// runHelm exits as Helm's own main does: a plugin's exit code is passed on.
func runHelm() int {
	kube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		slog.Warn("command failed", slog.Any("error", err))
		return 1
	}
	if err := command.Execute(); err != nil {
		if failed, ok := errors.AsType[helm.CommandError](err); ok {
			return failed.ExitCode
		}
		return 1
	}
	return 0
}

func without(old *flag.FlagSet, names []string) *flag.FlagSet {
	kept := flag.NewFlagSet(old.Name(), flag.ExitOnError)
	old.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(names, f.Name) {
			kept.Var(f.Value, f.Name, f.Usage)
		}
	})
	return kept
}
