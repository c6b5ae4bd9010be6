#!/bin/sh
# The script of the image zookeeper, for the jars of ZooKeeper: zkServer.sh start-foreground|status
set -eu
zookeeper=org.apache.zookeeper
case $1 in
  start-foreground)
    printf 'dataDir=/data\nclientPort=2181\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n' >/tmp/zoo.cfg
    exec java -Xmx128m -cp '/opt/zookeeper/*' $zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
    ;;
  status)
    java -Xmx64m -cp '/opt/zookeeper/*' $zookeeper.client.FourLetterWordMain localhost 2181 srvr | grep Mode
    ;;
esac
